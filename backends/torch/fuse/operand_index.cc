#include "backends/torch/fuse/operand_index.h"

#include <vector>

#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

// An axis of the iteration space: its extent, the elements between neighbors there, and those in the operand.
struct Axis {
  int64_t extent, step, stride;
};

// The axes of extents above 1; those that the operand steps through at once are merged, but not across `columns`.
std::vector<Axis> MergeAxes(const Shape& operand, const Shape& shape, int64_t columns) {
  const Shape steps = Strides(shape), strides = Strides(operand);
  std::vector<Axis> axes;
  for (size_t a = 0; a < shape.size(); ++a) {
    if (shape[a] == 1) continue;
    const size_t missing = shape.size() - operand.size();
    const bool broadcast = a < missing || operand[a - missing] == 1;
    const Axis axis{shape[a], steps[a], broadcast ? 0 : strides[a - missing]};
    const bool merges = !axes.empty() && axes.back().step != columns && axes.back().stride == axis.stride * axis.extent;
    if (merges) {
      axes.back() = {axes.back().extent * axis.extent, axis.step, axis.stride};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

// "(c / 4) % 3 * 8". `size`: of the counter, which the outermost axis need not reduce.
std::string MakeTerm(std::string_view counter, int64_t step, const Axis& axis, int64_t size) {
  std::string term = step == 1 ? std::string(counter) : StrCat(counter, " / ", step);
  if (step * axis.extent < size) term = StrCat("(", term, ") % ", axis.extent);
  if (axis.stride != 1) term = StrCat("(", term, ") * ", axis.stride);
  return term;
}

bool Straddles(const Axis& axis, int64_t columns) { return axis.step < columns && axis.step * axis.extent > columns; }

}  // namespace

OperandIndex MakeOperandIndex(const Shape& operand, const Shape& shape, const KernelSpace& space) {
  OperandIndex index{.offset = "", .of_row = true, .same = true, .run = OperandIndex::kAnyRun};
  const std::vector<Axis> axes = MergeAxes(operand, shape, space.columns);
  bool straddles = false;
  for (const Axis& axis : axes) straddles |= Straddles(axis, space.columns);
  for (const Axis& axis : axes) {
    if (axis.stride == 0) continue;
    const bool of_row = !straddles && axis.step >= space.columns;
    const std::string term = straddles ? MakeTerm("e", axis.step, axis, space.elements())
                             : of_row  ? MakeTerm("r", axis.step / space.columns, axis, space.rows)
                                       : MakeTerm("c", axis.step, axis, space.columns);
    StrAppend(&index.offset, index.offset.empty() ? "" : " + ", term);
    index.of_row &= of_row;
  }
  if (index.offset.empty()) index.offset += '0';
  if (!axes.empty() && !index.of_row) {
    const Axis& last = axes.back();
    index.same = last.stride == 0;
    index.run = last.stride <= 1 ? last.extent : 1;
  }
  return index;
}

}  // namespace onnxtrain::aten
