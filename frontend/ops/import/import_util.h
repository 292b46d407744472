// Helpers for import functions of several families.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

using ImportOr = absl::StatusOr<std::vector<Val>>;

inline ImportOr One(Val y) { return std::vector<Val>{y}; }

// Imports the node as the canonical operator of its name, with its inputs and attributes. Drops `consumed_inputs`, a
// hint on in-place execution in opset 1.
ImportOr ImportSame(ImportContext& c);
// Returns input 1, reshaped to broadcast against input 0. Before opset 7, `broadcast` enabled broadcasting and `axis`
// was the first axis of input 0 that input 1 covers.
absl::StatusOr<Val> SecondOperand(ImportContext& c);
// Returns the attribute `axis` (or `otherwise`), normalized to [0, rank).
absl::StatusOr<int64_t> ReadAxis(ImportContext& c, int64_t otherwise, int64_t rank);
// Normalizes each axis; fails on repeats.
absl::StatusOr<std::vector<int64_t>> NormalizeAxes(std::vector<int64_t> axes, int64_t rank);
// Returns the element of a known input with exactly one.
absl::StatusOr<int64_t> KnownInt(ImportContext& c, size_t i, std::string_view what);
absl::StatusOr<double> KnownDouble(ImportContext& c, size_t i, std::string_view what);
// Returns the element type of an ONNX number.
absl::StatusOr<DType> ElementType(int64_t onnx_type);
// Imports these inputs and attributes as another ONNX operator of the newest supported opset.
ImportOr ImportAs(ImportContext& c, std::string_view domain, std::string_view op_type, std::vector<Val> inputs,
                  Attrs attrs);
// Returns x[index] along an axis. Import has computed and checked the index.
Val GatherConstant(Val x, const std::vector<int64_t>& index, int64_t axis);

}  // namespace onnxtrain
