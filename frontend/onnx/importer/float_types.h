// The element types that a model's float types become.
#pragma once

#include "frontend/onnx/parsed.h"

namespace onnxtrain {

// Maps float32 to the chosen float type. float16 and bfloat16 get masters of it too, and everything around them
// computes in it, unless `keep_low_precision`.
class FloatTypes {
 public:
  FloatTypes(DType float_type, bool keep_low_precision)
      : float_type_(float_type), keep_low_precision_(keep_low_precision) {}

  DType Map(DType dtype) const;
  HostTensor Map(const HostTensor& tensor) const { return tensor.CastTo(Map(tensor.dtype())); }
  // Maps tensors in the attributes and attributes that name an element type, defaults included.
  void MapAttrs(const ParsedNode& node, Attrs* attrs) const;

 private:
  void MapTypeAttr(const OnnxTraits& traits, Attrs* attrs) const;

  DType float_type_;
  bool keep_low_precision_;
};

}  // namespace onnxtrain
