// Declares the parts of the shape family of imports. Internal to frontend/ops.
#pragma once

#include <span>

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

std::span<const OnnxOp> ReshapingImports();  // Reshape … Tile, DepthToSpace
std::span<const OnnxOp> SlicingImports();    // Concat, Split, Slice, Pad
std::span<const OnnxOp> FillingImports();    // Constant, Shape, Range … Trilu

}  // namespace onnxtrain
