// Losses for rare classes and regions. Focal: Lin et al., Focal Loss for Dense Object Detection (2017), as
// torchvision.ops.sigmoid_focal_loss. Dice: Milletari et al., V-Net (2016), with unsquared sums in the denominator.
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {

namespace {

// (1 − p)^γ. For γ < 1 the slope at p = 1 is infinite: p is clamped below 1.
Val Modulation(Val one_minus_p, double gamma) {
  if (gamma == 1) return one_minus_p;
  return Pow(gamma < 1 ? Max(one_minus_p, 1e-6) : one_minus_p, gamma);
}

LossParts FocalBinary(const LossContext& c, double gamma) {
  const double alpha = c.Option("alpha", 0.25);
  const Val p = Sigmoid(c.y), t = c.labels;
  Val loss = c.y.b().Op("BinaryCrossEntropyWithLogits", {c.y, t});
  if (gamma > 0) loss = loss * Modulation(p + t - p * t * 2.0, gamma);  // 1 − p_t
  return {loss * (t * (2 * alpha - 1) + (1 - alpha)), CountCorrectBinary(c)};
}

LossParts Focal(const LossContext& c) {
  const double gamma = c.Option("gamma", 2), alpha = c.Option("alpha", 1);
  if (c.form == LabelForm::kElements) return FocalBinary(c, gamma);
  Builder& b = c.y.b();
  const auto focal = [&](Val log_p) {
    const Val loss = log_p * -alpha;
    return gamma > 0 ? loss * Modulation(-b.Op("Expm1", {log_p}), gamma) : loss;
  };
  if (c.form == LabelForm::kDistribution) {
    const Val log_prob = LogSoftmax(c.y, c.y.rank() - 1);
    return {c.labels * focal(log_prob), CountCorrectSoft(c.y, c.labels)};
  }
  const auto pair = AlignClasses(c.y, c.labels);
  const auto [log_prob, ignored] = GatherClassScores({LogSoftmax(pair.scores, 1), pair.labels}, c.ignore_index);
  return {Where(ignored, b.Scalar(c.y.dtype(), 0), focal(log_prob)),
          CountCorrect(pair.scores, pair.labels, 1, c.y.dtype())};
}

// Probabilities and targets [N, regions, …]; sums over the axes after the regions.
struct Regions {
  Val p, t;
};

// An output of rank ≥ 4 has one region per channel, any other output one region.
Regions ElementRegions(const LossContext& c) {
  const int64_t n = c.y.dim(0), channels = c.y.rank() >= 4 ? c.y.dim(1) : 1;
  const Shape flat = {n, channels, NumElements(c.y.shape()) / (n * channels)};
  return {Reshape(Sigmoid(c.y), flat), Reshape(c.labels, flat)};
}

// Every class is a region. `axis`: the class axis of y.
Regions ClassRegions(const LossContext& c, int axis) {
  Builder& b = c.y.b();
  const int64_t n = c.y.dim(0), classes = c.y.dim(axis);
  Regions r{Softmax(c.y, axis), c.labels};
  if (c.form == LabelForm::kClasses) {
    Shape one = c.y.shape();
    one[axis] = 1;
    const Val labels = Reshape(c.labels, one);
    r.t = Cast(Equal(labels, ClassIndices(b, classes, c.y.rank(), axis)), c.y.dtype());
    const Val counts = Not(Equal(labels, b.Scalar(DType::kInt64, static_cast<double>(c.ignore_index))));
    r.p = r.p * Cast(counts, c.y.dtype());
  }
  const int64_t rest = NumElements(c.y.shape()) / (n * classes);
  const bool last = axis == c.y.rank() - 1 && axis != 1;
  const auto arrange = [&](Val v) {
    return last ? Transpose(Reshape(v, {n, rest, classes}), {0, 2, 1}) : Reshape(v, {n, classes, rest});
  };
  return {arrange(r.p), arrange(r.t)};
}

LossParts Dice(const LossContext& c) {
  const double smooth = c.Option("smooth", 1);
  int axis = c.y.rank() - 1;
  if (c.form == LabelForm::kClasses)
    axis = *ClassAxis(c.y.shape(), Shape(c.labels.shape().begin() + 1, c.labels.shape().end()));
  const auto [p, t] = c.form == LabelForm::kElements ? ElementRegions(c) : ClassRegions(c, axis);
  const Val common = ReduceSum(p * t, {2}, false), all = ReduceSum(p + t, {2}, false);
  return {ReduceMean(1.0 - (common * 2.0 + smooth) / (all + smooth), {1}, false), Val()};
}

}  // namespace

std::span<const LossFunction> RegionLosses() {
  static const std::vector<LossFunction> rows = {
      {.name = "focal",
       .text = "−α·(1 − p)^gamma·log p; alpha is 0.25 for coins (0.75 where the label is 0), 1 for classes",
       .takes = "ignore_index",
       .options = {{"gamma", 2, 0, 100}, {"alpha", kOpenOption, 0, 1}, kClassAxisOption},
       .classes = true,
       .elements = true,
       .final_activations = "Softmax LogSoftmax Sigmoid",
       .counts_correct = true,
       .parts = Focal},
      {.name = "dice",
       .text = "1 − (2·Σ p·t + smooth)/(Σ p + Σ t + smooth), mean over classes or channels",
       .takes = "ignore_index",
       .options = {{"smooth", 1, 0, 1e12}, kClassAxisOption},
       .classes = true,
       .elements = true,
       .final_activations = "Softmax LogSoftmax Sigmoid",
       .mean = LossMean::kSamples,
       .parts = Dice},
  };
  return rows;
}

}  // namespace onnxtrain
