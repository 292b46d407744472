// What the import functions of several families share.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/onnx_import.h"

namespace onnxtrain {

using ImportOr = absl::StatusOr<std::vector<Val>>;

inline ImportOr One(Val y) { return std::vector<Val>{y}; }

// The canonical operator of the node's name, with its inputs and attributes. (Opset 1 hung `consumed_inputs`, a hint on
// in-place execution, on most operators: it is dropped.)
ImportOr ImportSame(ImportContext& c);
// Input 1, ready to broadcast against input 0. Before opset 7 broadcasting was asked for by `broadcast`, and `axis` said
// where in the first operand the second one starts.
absl::StatusOr<Val> SecondOperand(ImportContext& c);
// The attribute `axis` (or `otherwise`), normalized to [0, rank).
absl::StatusOr<int64_t> AxisOf(ImportContext& c, int64_t otherwise, int64_t rank);
// Each axis normalized; fails on repeats.
absl::StatusOr<std::vector<int64_t>> NormalizeAxes(std::vector<int64_t> axes, int64_t rank);
// A known input with exactly one element.
absl::StatusOr<int64_t> KnownInt(ImportContext& c, size_t i, std::string_view what);
absl::StatusOr<double> KnownDouble(ImportContext& c, size_t i, std::string_view what);
// The element type behind an ONNX number.
absl::StatusOr<DType> ElementType(int64_t onnx_type);
// What another ONNX operator, of the newest opset known here, makes of these inputs and attributes.
ImportOr ImportAs(ImportContext& c, std::string_view domain, std::string_view op_type, std::vector<Val> inputs, Attrs attrs);
// A host constant as a value, refused above the limit before it is filled.
ImportOr HostConstant(ImportContext& c, const Type& type, double value);
// x[index] along an axis with an index that import has computed and checked.
Val GatherConstant(Val x, const std::vector<int64_t>& index, int64_t axis);

}  // namespace onnxtrain
