// Convolutions in the terms of oneDNN, for their kernels and for the passes that lower them.
#pragma once

#include <optional>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// A convolution and its two gradients.
enum class ConvKind { kForward, kInputGrad, kWeightGrad };

// The tensors of y = conv(x, w), whichever of the three is computed.
struct ConvGeometry {
  Shape x, y;                                         // [N,C,…], [N,M,…]
  Shape w;                                            // [M,C/g,…], or [g,M/g,C/g,…] where there are groups
  dnnl::memory::dims strides, dilations, begin, end;  // dilations as oneDNN counts them: 0 is dense

  // Returns true if a tensor has no elements, which oneDNN does not support.
  bool empty() const { return NumElements(x) == 0 || NumElements(w) == 0 || NumElements(y) == 0; }
};

// `attrs` has strides, pads, dilations and group; w is [M,C/g,…].
ConvGeometry MakeConvGeometry(const Attrs& attrs, Shape x, Shape w, Shape y);
ConvGeometry MakeConvGeometry(ConvKind kind, const Graph& graph, const Node& node);

// Returns true if the convolution reads single elements, so that it is a matrix product. w is [M,C/g,…].
bool IsMatMulConv(const Attrs& attrs, const Shape& w);

struct ConvLayouts {
  dnnl::memory::desc x, w, y;
};

// y = conv(x, w) + bias
dnnl::convolution_forward::primitive_desc ConvForward(const ConvGeometry& g, const ConvLayouts& l, bool bias);
// `hint`: the layouts of a forward convolution.
dnnl::convolution_backward_data::primitive_desc ConvBackwardData(const ConvGeometry& g, const ConvLayouts& l,
                                                                 const ConvLayouts& hint);
dnnl::convolution_backward_weights::primitive_desc ConvBackwardWeights(const ConvGeometry& g, const ConvLayouts& l,
                                                                       const ConvLayouts& hint);

// x and y channels last, the weights in the layout that oneDNN chooses. The operands are of type `factors`, the result
// is of type `result` (f32 or bf16).
ConvLayouts ChannelsLastLayouts(ConvKind kind, const ConvGeometry& g, DType factors, DType result = DType::kFloat32);
// The layout of the weights then, or nothing where only a reference implementation takes such tensors.
std::optional<dnnl::memory::desc> FindChannelsLastWeights(ConvKind kind, const ConvGeometry& g, DType factors);
// Can such a convolution over bf16, with the same weights, write bf16?
bool SupportsBf16Output(ConvKind kind, const ConvGeometry& g);

// A layout of weights as the attribute of a node, and back for weights [M,C/g,…] or a matrix. Only dense layouts in
// blocks.
std::vector<int64_t> ToInts(const dnnl::memory::desc& layout);
// Empty where the numbers are no layout of that shape.
std::optional<dnnl::memory::desc> PackedWeightLayout(const Type& w, int64_t group, const std::vector<int64_t>& ints);

// The weights [C,M,…] of the forward convolution that computes the input gradient of one with weights [M,C,…]; or the
// transposed matrix.
Type FlippedWeights(Type w);

// [M,C/g,…] → [g,M/g,C/g,…] where there are groups.
Shape GroupedWeights(Shape w, int64_t group);

// Computes backward weights in float32 with vectors of 16 lanes (conv_weight_grad.cc): from x [N,C,H,W] and
// dy [N,M,P,Q], channels last, to row-major weights [M,C,…]. Empty where oneDNN's kernel is as fast.
std::optional<Kernel> MakeDirectWeightGrad(const ConvGeometry& g, DType factors);

}  // namespace onnxtrain::cpu
