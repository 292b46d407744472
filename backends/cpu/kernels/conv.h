// Convolutions as oneDNN sees them, for their kernels and for the pass that chooses layouts.
#pragma once

#include <optional>

#include "backends/cpu/dnnl_call.h"
#include "frontend/graph/attrs.h"

namespace onnxtrain::cpu {

// The three products of a convolution's family.
enum class ConvKind { kForward, kInputGrad, kWeightGrad };

// y = conv(x, w), whichever of the three is computed.
struct ConvGeometry {
  Shape x, y;                                          // [N,C,…], [N,M,…]
  Shape w;                                             // [M,C/g,…], or [g,M/g,C/g,…] where there are groups
  dnnl::memory::dims strides, dilations, begin, end;   // dilations as oneDNN counts them: 0 is dense

  // Is one of the tensors without elements? oneDNN takes none.
  bool empty() const { return NumElements(x) == 0 || NumElements(w) == 0 || NumElements(y) == 0; }
};

// `attrs` has strides, pads, dilations and group; w is [M,C/g,…].
ConvGeometry MakeConvGeometry(const Attrs& attrs, Shape x, Shape w, Shape y);

struct ConvLayouts {
  dnnl::memory::desc x, w, y;
};

// y = act(conv(x, w) + bias)
struct ConvEpilogue {
  bool bias = false, relu = false;
};

dnnl::convolution_forward::primitive_desc ConvForward(const ConvGeometry& g, const ConvLayouts& l, ConvEpilogue e);
// `hint`: the layouts of a forward convolution.
dnnl::convolution_backward_data::primitive_desc ConvBackwardData(const ConvGeometry& g, const ConvLayouts& l, const ConvLayouts& hint);
dnnl::convolution_backward_weights::primitive_desc ConvBackwardWeights(const ConvGeometry& g, const ConvLayouts& l, const ConvLayouts& hint);

// x and y channels last, the weights as the implementation likes them best. What is multiplied is of type `factors`, the result
// of type `result` (f32 or bf16).
ConvLayouts ChannelsLastLayouts(ConvKind kind, const ConvGeometry& g, DType factors, DType result = DType::kFloat32);
// The layout of the weights then, or nothing where only a reference implementation knows such tensors.
// Throws dnnl::error.
std::optional<dnnl::memory::desc> ChannelsLastWeights(ConvKind kind, const ConvGeometry& g, DType factors);
// May the result of such a convolution over bf16 be bf16, too, with the same weights? Throws dnnl::error.
bool GivesHalves(ConvKind kind, const ConvGeometry& g);

// A layout of weights as the attribute of a node holds it, and back for weights [M,C/g,…]. Only dense layouts in blocks.
std::vector<int64_t> ToInts(const dnnl::memory::desc& layout);
// Nothing where the numbers are no layout of that shape.
std::optional<dnnl::memory::desc> PackedConvLayout(const Type& w, int64_t group, const std::vector<int64_t>& ints);

// The weights [C,M,…] of the convolution that gives the gradient of the input of one with weights [M,C,…].
Type TurnedWeights(Type w);

// [M,C/g,…] → [g,M/g,C/g,…] where there are groups.
Shape GroupedWeights(Shape w, int64_t group);

}  // namespace onnxtrain::cpu
