// The element types that a model's float types become.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Whether the graph stores weights in float64, and not just a number of a formula. Numbers are weights where all that
// is float is float64: y = w x + b.
bool HasDoubleWeights(const ParsedGraph& graph);

// Maps float32 to the chosen float type. float16 and bfloat16 get masters of it too, and everything around them
// computes in it, unless `as_stored`; so does float64 in a graph with float64 weights. In others float64 is what a
// float32 model computes positions and sizes in, and stays.
class FloatTypes {
 public:
  FloatTypes(DType float_type, bool as_stored, bool double_weights = false)
      : float_type_(float_type), low_(!as_stored), double_(!as_stored && double_weights) {}

  DType Map(DType dtype) const;
  HostTensor Map(const HostTensor& tensor) const { return tensor.CastTo(Map(tensor.dtype())); }
  // Maps tensors in the attributes and attributes that name an element type, defaults included.
  void MapAttrs(const ParsedNode& node, Attrs* attrs) const;

 private:
  void MapTypeAttr(const OnnxTraits& traits, Attrs* attrs) const;

  DType float_type_;
  bool low_, double_;  // which other types are mapped
};

}  // namespace onnxtrain
