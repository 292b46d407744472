#include "frontend/ops/import/nn.h"

namespace onnxtrain {
namespace {

// x as the operator sees it: before version 13 it is flattened to two axes at `axis`, and works along the second.
struct Lines {
  Val x;
  int64_t axis;
};

absl::StatusOr<Lines> ReadSoftmaxAxis(const ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const Val x = c.in(0);
  const int64_t before = c.attrs().Int("axis", 1);
  const bool last = before == -1 || before == x.rank() - 1;  // then nothing is flattened
  const bool along_axis = c.since(13, true, last);
  ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(along_axis ? c.attrs().Int("axis", -1) : before, x.rank()));
  if (along_axis) return Lines{x, axis};
  const auto middle = x.shape().begin() + axis;
  return Lines{Reshape(x, {NumElements(Shape(x.shape().begin(), middle)), NumElements(Shape(middle, x.shape().end()))}),
               1};
}

ImportResult ImportRow(ImportContext& c) {
  ASSIGN_OR_RETURN(const Lines lines, ReadSoftmaxAxis(c));
  return std::vector<Val>{Reshape(c.b().Op(c.node().op_type, {lines.x}, {{"axis", lines.axis}}), c.in(0).shape())};
}

// One at the first maximum, zero elsewhere.
ImportResult ImportHardmax(ImportContext& c) {
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

}  // namespace onnxtrain
