// ValueInfoProto → ParsedValue.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnx {
class ValueInfoProto;
}

namespace onnxtrain {

// Reads the declared name, type and shape of an input or output. Extents of 0 and below are free: exporters write them
// for unknown extents.
ParsedValue ReadValueInfo(const onnx::ValueInfoProto& proto);

}  // namespace onnxtrain
