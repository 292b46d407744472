#include <limits>

#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

// The operand of a softmax and its axis. Before version 13, x is flattened at `axis` to two axes, and the second one is
// used.
struct Lines {
  Val x;
  int64_t axis;
};

absl::StatusOr<Lines> ReadSoftmaxAxis(const ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const Val x = c.in(0);
  const int64_t before = c.attrs().Int("axis", 1);
  const bool last = before == -1 || before == x.rank() - 1;  // the last axis needs no flattening
  const bool along_axis = c.since(13, true, last);
  ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(along_axis ? c.attrs().Int("axis", -1) : before, x.rank()));
  if (along_axis) return Lines{x, axis};
  const auto middle = x.shape().begin() + axis;
  return Lines{Reshape(x, {NumElements(Shape(x.shape().begin(), middle)), NumElements(Shape(middle, x.shape().end()))}),
               1};
}

ImportOr ImportRow(ImportContext& c) {
  ASSIGN_OR_RETURN(const Lines lines, ReadSoftmaxAxis(c));
  return std::vector<Val>{Reshape(c.b().Op(c.node().op_type, {lines.x}, {{"axis", lines.axis}}), c.in(0).shape())};
}

// Imports Hardmax: 1 at the first maximum, 0 elsewhere.
ImportOr ImportHardmax(ImportContext& c) {
  ASSIGN_OR_RETURN(const Lines lines, ReadSoftmaxAxis(c));
  const Val x = lines.x;
  const Val best = c.b().Op("ArgMax", {x}, {{"axis", lines.axis}, {"keepdims", int64_t{1}}});
  ASSIGN_OR_RETURN(const Val index, Iota(c.b(), x.dim(static_cast<int>(lines.axis))));
  Shape along(x.rank(), 1);
  along[lines.axis] = index.dim(0);
  return std::vector<Val>{Reshape(Cast(Equal(best, Reshape(index, along)), x.dtype()), c.in(0).shape())};
}

}  // namespace

std::span<const OnnxOp> SoftmaxImports() {
  static constexpr OnnxOp ops[] = {
      {"", "Softmax", 1, 1, ImportRow, {.probabilities = true}},
      {"", "LogSoftmax", 1, 1, ImportRow, {.probabilities = true}},
      {"", "Hardmax", 1, 1, ImportHardmax, {.discrete_outputs = 1}},
  };
  return ops;
}

namespace {

// The ignore_index of nodes that have none; no label has this value.
constexpr int64_t kIgnoreNothing = std::numeric_limits<int64_t>::min();

struct Labels {
  Val index;    // i64; 0 for ignored labels
  Val ignored;  // bool; invalid if no label can be ignored
};

Val IntScalar(Builder& b, int64_t value) { return b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&value, 1})); }

Labels ReadLabels(ImportContext& c) {
  const Val labels = Cast(c.in(1), DType::kInt64);
  const auto* ignore = c.attrs().Find<int64_t>("ignore_index");
  if (ignore == nullptr) return {labels, Val()};
  const Val ignored = Equal(labels, IntScalar(c.b(), *ignore));
  return {Where(ignored, IntScalar(c.b(), 0), labels), ignored};
}

absl::Status CheckLossInputs(const ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  const Val scores = c.in(0);
  Shape rest = scores.shape();
  if (rest.size() < 2 || !IsFloat(scores.dtype()))
    return Invalid("expected scores [N,C,…], got ", ToString(scores.type()));
  rest.erase(rest.begin() + 1);
  if (c.in(1).shape() != rest || !IsInteger(c.in(1).dtype())) {
    return Invalid("labels should be integers ", ToString(rest), ", got ", ToString(c.in(1).type()));
  }
  if (c.has(2) && c.in(2).type() != Type{scores.dtype(), {scores.dim(1)}}) {
    return Invalid("weights should be ", ToString(Type{scores.dtype(), {scores.dim(1)}}), ", got ",
                   ToString(c.in(2).type()));
  }
  return absl::OkStatus();
}

Val ZeroWhere(Val condition, Val x) { return condition ? Where(condition, x.b().Scalar(x.dtype(), 0), x) : x; }

// Returns the weight of each sample: the weight of its class, or 0 for an ignored label. Invalid if all weights are 1.
Val SampleWeights(ImportContext& c, const Labels& labels) {
  const DType type = c.in(0).dtype();
  if (c.has(2)) return ZeroWhere(labels.ignored, c.b().Op("Gather", {c.in(2), labels.index}, {{"axis", int64_t{0}}}));
  return labels.ignored ? Cast(c.b().Op("Not", {labels.ignored}), type) : Val();
}

// Applies the attribute `reduction` to the losses of samples, which are 0 for ignored labels. The mean divides by the
// sum of the weights, so ignored samples do not count.
absl::StatusOr<Val> Reduced(ImportContext& c, Val loss, const Labels& labels) {
  const std::string reduction = c.attrs().String("reduction", "mean");
  const Val weights = SampleWeights(c, labels);
  if (c.has(2)) loss = loss * weights;
  if (reduction == "none") return loss;
  if (reduction == "sum") return ReduceSum(loss, {}, false);
  if (reduction != "mean") return Invalid("reduction '", reduction, "' is none of none, sum, mean");
  if (!weights) return ReduceMean(loss, {}, false);
  return ReduceSum(loss, {}, false) / ReduceSum(weights, {}, false);
}

ImportOr ImportSoftmaxCrossEntropy(ImportContext& c) {
  RETURN_IF_ERROR(CheckLossInputs(c));
  const std::vector<Val> loss = c.b().Ops("CrossEntropy", {c.in(0), Cast(c.in(1), DType::kInt64)},
                                          {{"ignore_index", c.attrs().Int("ignore_index", kIgnoreNothing)}});
  ASSIGN_OR_RETURN(const Val reduced, Reduced(c, loss[0], ReadLabels(c)));
  return std::vector<Val>{reduced, loss[1]};
}

// Imports NegativeLogLikelihoodLoss, whose input has log-probabilities.
ImportOr ImportNegativeLogLikelihood(ImportContext& c) {
  RETURN_IF_ERROR(CheckLossInputs(c));
  const Labels labels = ReadLabels(c);
  Shape one = c.in(0).shape();
  one[1] = 1;
  const Val picked = c.b().Op("GatherElements", {c.in(0), Reshape(labels.index, one)}, {{"axis", int64_t{1}}});
  const Val loss = ZeroWhere(labels.ignored, -Reshape(picked, c.in(1).shape()));
  ASSIGN_OR_RETURN(const Val reduced, Reduced(c, loss, labels));
  return std::vector<Val>{reduced};
}

}  // namespace

std::span<const OnnxOp> LossImports() {
  static constexpr OnnxOp ops[] = {
      {"", "SoftmaxCrossEntropyLoss", 2, 3, ImportSoftmaxCrossEntropy},
      {"", "NegativeLogLikelihoodLoss", 2, 3, ImportNegativeLogLikelihood},
  };
  return ops;
}

}  // namespace onnxtrain
