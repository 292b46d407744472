// Cross entropy: the log-probability of a label, gathered from a LogSoftmax.
#include <limits>

#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

// −log p(label) by CrossEntropy, for labels from 0 and classes on axis 1 or the last axis.
Val Form(Val x, Val index, int64_t axis) {
  Shape samples = index.shape();
  samples.erase(samples.begin() + axis);
  if (axis != 1) {
    samples = {NumElements(samples)};
    x = Reshape(x, {samples[0], x.dim(-1)});
  }
  const Attrs attrs = {{"ignore_index", std::numeric_limits<int64_t>::min()}};
  return x ? -Reshape(x.b().Op("CrossEntropy", {x, Reshape(index, samples)}, attrs), index.shape()) : Val();
}

}  // namespace

Proposals ProposeCrossEntropy(const Pattern& pattern, const Node& root) {
  if (root.op != "GatherElements" || !pattern.HasOneUse(root.inputs[0])) return {};
  const Node* softmax = pattern.Producer(root.inputs[0], "LogSoftmax");
  const int64_t axis = root.attrs.Int("axis");
  if (softmax == nullptr || softmax->attrs.Int("axis") != axis) return {};
  const ValueId x = softmax->inputs[0], index = root.inputs[1];
  Shape one = pattern.graph().type(x).shape;
  const auto rank = static_cast<int64_t>(one.size());
  one[axis] = 1;
  if (pattern.graph().type(index) != Type{DType::kInt64, one} || (axis != 1 && axis != rank - 1)) return {};
  Shape small(rank, 2), small_index = small;
  small[axis] = 5;
  small_index[axis] = 1;
  auto form = [axis](Builder&, std::span<const Val> v) { return Form(v[0], v[1], axis); };
  return {{root.outputs[0],
           "CrossEntropy",
           {{x, small}, {index, small_index, 5}},
           form,
           {root.outputs[0], softmax->outputs[0]}}};
}

}  // namespace onnxtrain
