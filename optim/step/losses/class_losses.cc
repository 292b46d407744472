// Losses over class indices or class distributions.
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {

ClassPair AlignClasses(Val scores, Val labels) {
  const int axis = *ClassAxis(scores.shape(), Shape(labels.shape().begin() + 1, labels.shape().end()));
  if (axis == 1) return {scores, labels};
  const int64_t classes = scores.dim(axis);
  const int64_t rows = NumElements(labels.shape());
  return {Reshape(scores, {rows, classes}), Reshape(labels, {rows})};
}

GatheredClass GatherClassScores(const ClassPair& pair, int64_t ignore_index) {
  Builder& b = pair.scores.b();
  const Val ignored = Equal(pair.labels, b.Scalar(DType::kInt64, static_cast<double>(ignore_index)));
  const Val safe = Where(ignored, b.Scalar(DType::kInt64, 0), pair.labels);
  Shape index_shape = pair.labels.shape();
  index_shape.insert(index_shape.begin() + 1, 1);
  const Val picked = GatherElements(pair.scores, Reshape(safe, index_shape), 1);
  return {Reshape(picked, pair.labels.shape()), ignored};
}

Val CountCorrect(Val scores, Val labels, int64_t axis, DType dtype) {
  return ReduceSum(Cast(Equal(ArgMax(scores, axis), labels), dtype), {}, false);
}

Val CountCorrectSoft(Val scores, Val targets) {
  const int64_t axis = scores.rank() - 1;
  return CountCorrect(scores, ArgMax(targets, axis), axis, scores.dtype());
}

namespace {

// Returns the class weights as [K, 1, …], for axis 0 of a tensor of this rank.
Val ClassWeights(const LossContext& c, int rank) {
  Shape along(rank, 1);
  along[0] = std::ssize(c.class_weights);
  const std::vector<double> weights(c.class_weights.begin(), c.class_weights.end());
  return c.y.b().Constant(HostTensor::FromDoubles({c.y.dtype(), along}, weights));
}

// Weighted class probabilities.
Val Weighted(const LossContext& c, Val shares) {
  return c.class_weights.empty() ? shares : shares * ClassWeights(c, 1);
}

// Returns the weight of each target, in the labels' shape [N, …].
Val TargetWeights(const LossContext& c, Val labels, Val ignored) {
  const Val safe = Where(ignored, c.y.b().Scalar(DType::kInt64, 0), labels);
  return Gather(ClassWeights(c, 1), safe, 0);
}

// As in PyTorch, the smoothed part is weighted by each class's weight and the rest by the target's.
Val WeightedCrossEntropy(const LossContext& c, const ClassPair& pair) {
  Builder& b = c.y.b();
  const Val ignored = Equal(pair.labels, b.Scalar(DType::kInt64, static_cast<double>(c.ignore_index)));
  const Val loss = b.Ops("CrossEntropy", {pair.scores, pair.labels},
                         {{"ignore_index", c.ignore_index}, {"label_smoothing", 0.0}})[0];
  const Val weighted = loss * TargetWeights(c, pair.labels, ignored);
  if (c.label_smoothing == 0) return weighted;
  const Val log_prob = LogSoftmax(pair.scores, 1);
  const Val spread = ReduceSum(log_prob * ClassWeights(c, pair.scores.rank() - 1), {1}, false);
  const Val counts = Where(ignored, b.Scalar(c.y.dtype(), 0), spread);
  return weighted * (1 - c.label_smoothing) - counts * (c.label_smoothing / static_cast<double>(pair.scores.dim(1)));
}

// −Σ t·log p, for distributions t over the last axis.
LossParts SoftCrossEntropy(const LossContext& c) {
  const double classes = static_cast<double>(c.y.dim(-1));
  const Val smooth =
      c.label_smoothing == 0 ? c.labels : c.labels * (1 - c.label_smoothing) + c.label_smoothing / classes;
  const Val t = Weighted(c, smooth);
  const Val log_prob = LogSoftmax(c.y, c.y.rank() - 1);
  return {-(t * log_prob), CountCorrectSoft(c.y, c.labels)};
}

// Returns true if the permutation moves the last axis to 1 and keeps the order of the others.
bool MovesLastAxisToOne(const std::vector<int64_t>& perm) {
  const auto last = static_cast<int64_t>(perm.size()) - 1;
  for (int64_t i = 0; i <= last; ++i) {
    if (perm[i] != (i == 0 ? 0 : i == 1 ? last : i - 1)) return false;
  }
  return last >= 2;
}

// Returns scores [N,C,…] that transpose [N,…,C], as language models export them for PyTorch's loss, in rows [·,C]: the
// product before them can then be divided into blocks of rows (frontend/passes/chunk_cross_entropy.h). Other scores are
// returned as they are.
ClassPair SkipTranspose(const ClassPair& pair) {
  const Node* node = pair.scores.b().graph().producer(pair.scores.id());
  if (node == nullptr || node->op != "Transpose" || !MovesLastAxisToOne(node->attrs.Ints("perm"))) return pair;
  const int64_t rows = pair.labels.type().elements();
  const Val scores = pair.scores.b().Wrap(node->inputs[0]);
  return {Reshape(scores, {rows, pair.scores.dim(1)}), Reshape(pair.labels, {rows})};
}

LossParts CrossEntropy(const LossContext& c) {
  if (c.form == LabelForm::kDistribution) return SoftCrossEntropy(c);
  const auto pair = SkipTranspose(AlignClasses(c.y, c.labels));
  if (!c.class_weights.empty())
    return {WeightedCrossEntropy(c, pair), CountCorrect(pair.scores, pair.labels, 1, c.y.dtype())};
  const Val loss = c.y.b().Ops("CrossEntropy", {pair.scores, pair.labels},
                               {{"ignore_index", c.ignore_index}, {"label_smoothing", c.label_smoothing}})[0];
  return {loss, CountCorrect(pair.scores, pair.labels, 1, c.y.dtype())};
}

LossParts Nll(const LossContext& c) {
  if (c.form == LabelForm::kDistribution) return {-(Weighted(c, c.labels) * c.y), CountCorrectSoft(c.y, c.labels)};
  const auto pair = AlignClasses(c.y, c.labels);
  const auto [log_prob, ignored] = GatherClassScores(pair, c.ignore_index);
  const Val losses = c.class_weights.empty() ? -log_prob : -log_prob * TargetWeights(c, pair.labels, ignored);
  return {Where(ignored, c.y.b().Scalar(c.y.dtype(), 0), losses),
          CountCorrect(pair.scores, pair.labels, 1, c.y.dtype())};
}

}  // namespace

std::span<const LossFunction> ClassLosses() {
  static const std::vector<LossFunction> rows = {
      {.name = "cross_entropy",
       .alias = "ce",
       .text = "−log softmax(y)[label]",
       .takes = "label_smoothing ignore_index class_weights",
       .options = {kClassAxisOption},
       .classes = true,
       .final_activations = "Softmax LogSoftmax",
       .counts_correct = true,
       .parts = CrossEntropy},
      {.name = "nll",
       .text = "−y[label]",
       .takes = "ignore_index class_weights",
       .options = {kClassAxisOption},
       .classes = true,
       .counts_correct = true,
       .parts = Nll},
  };
  return rows;
}

}  // namespace onnxtrain
