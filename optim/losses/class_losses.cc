// Losses of class indices or distributions.
#include "optim/losses/shared.h"
#include "optim/losses/loss_function.h"

namespace onnxtrain {

ClassPair Arrange(Val scores, Val labels) {
  const int axis = *ClassAxis(scores.shape(), Shape(labels.shape().begin() + 1, labels.shape().end()));
  if (axis == 1) return {scores, labels};
  const int64_t classes = scores.dim(axis);
  const int64_t rows = NumElements(labels.shape());
  return {Reshape(scores, {rows, classes}), Reshape(labels, {rows})};
}

PickedClass Pick(const ClassPair& pair, int64_t ignore_index) {
  Builder& b = pair.scores.b();
  const Val ignored = Equal(pair.labels, b.Scalar(DType::kInt64, static_cast<double>(ignore_index)));
  const Val safe = Where(ignored, b.Scalar(DType::kInt64, 0), pair.labels);
  Shape index_shape = pair.labels.shape();
  index_shape.insert(index_shape.begin() + 1, 1);
  const Val picked = b.Op("GatherElements", {pair.scores, Reshape(safe, index_shape)}, {{"axis", int64_t{1}}});
  return {Reshape(picked, pair.labels.shape()), ignored};
}

Val Hits(Val scores, Val labels, int64_t axis, DType dtype) {
  const Val best = scores.b().Op("ArgMax", {scores}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  return ReduceSum(Cast(Equal(best, labels), dtype), {}, false);
}

Val DistributionHits(Val scores, Val targets) {
  const int64_t axis = scores.rank() - 1;
  const Val best = scores.b().Op("ArgMax", {targets}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  return Hits(scores, best, axis, scores.dtype());
}

namespace {

// −Σ t·log p for labels given as distributions over the last axis.
LossParts SoftCrossEntropy(const LossContext& c) {
  const double classes = static_cast<double>(c.y.dim(-1));
  const Val t = c.label_smoothing == 0 ? c.labels : c.labels * (1 - c.label_smoothing) + c.label_smoothing / classes;
  const Val log_prob = c.y.b().Op("LogSoftmax", {c.y}, {{"axis", int64_t{c.y.rank() - 1}}});
  return {-(t * log_prob), DistributionHits(c.y, c.labels)};
}

LossParts CrossEntropy(const LossContext& c) {
  if (c.form == LabelForm::kDistribution) return SoftCrossEntropy(c);
  const auto pair = Arrange(c.y, c.labels);
  const Val loss = c.y.b().Ops("CrossEntropy", {pair.scores, pair.labels},
                               {{"ignore_index", c.ignore_index}, {"label_smoothing", c.label_smoothing}})[0];
  return {loss, Hits(pair.scores, pair.labels, 1, c.y.dtype())};
}

LossParts Nll(const LossContext& c) {
  if (c.form == LabelForm::kDistribution) return {-(c.labels * c.y), DistributionHits(c.y, c.labels)};
  const auto pair = Arrange(c.y, c.labels);
  const auto [log_prob, ignored] = Pick(pair, c.ignore_index);
  return {Where(ignored, c.y.b().Scalar(c.y.dtype(), 0), -log_prob), Hits(pair.scores, pair.labels, 1, c.y.dtype())};
}

}  // namespace

std::span<const LossFunction> ClassLosses() {
  static const std::vector<LossFunction> rows = {
      {.name = "cross_entropy", .alias = "ce", .text = "−log softmax(y)[label]", .takes = "label_smoothing ignore_index",
       .classes = true, .behind = "Softmax LogSoftmax", .hits = true, .parts = CrossEntropy},
      {.name = "nll", .text = "−y[label]", .takes = "ignore_index", .classes = true, .hits = true, .parts = Nll},
  };
  return rows;
}

}  // namespace onnxtrain
