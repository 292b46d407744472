#include "frontend/base/status.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

ImportOr ImportBitShift(ImportContext& c) {
  const std::string direction = c.attrs().String("direction");
  if (direction != "LEFT" && direction != "RIGHT")
    return Invalid("direction '", direction, "' is neither LEFT nor RIGHT");
  return One(c.b().Op(direction == "LEFT" ? "ShiftLeft" : "ShiftRight", {c.in(0), c.in(1)}));
}

}  // namespace

std::span<const OnnxOp> BitwiseImports() {
  static const OnnxOp ops[] = {
      {"", "BitShift", 2, 2, ImportBitShift},
  };
  return ops;
}

}  // namespace onnxtrain
