// Describes convolutions to oneDNN, for their kernels and for the passes that lower them.
#pragma once

#include <optional>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// A convolution, its backward data and its backward weights.
enum class ConvKind { kForward, kInputGrad, kWeightGrad };

// The extents of y = conv(x, w), for all three kinds.
struct ConvGeometry {
  Shape x, y;                                         // [N,C,…], [N,M,…]
  Shape w;                                            // [M,C/g,…], or [g,M/g,C/g,…] where there are groups
  dnnl::memory::dims strides, dilations, begin, end;  // dilations count from 0, as in oneDNN; begin, end: padding

  // Returns true if a tensor has no elements, which oneDNN does not support.
  bool empty() const { return NumElements(x) == 0 || NumElements(w) == 0 || NumElements(y) == 0; }
};

// `attrs` has strides, pads, dilations and group; w is [M,C/g,…].
ConvGeometry MakeConvGeometry(const Attrs& attrs, Shape x, Shape w, Shape y);
ConvGeometry MakeConvGeometry(ConvKind kind, const Graph& graph, const Node& node);

// Returns true if the convolution is a matrix product: one group, windows of one element, stride 1 and no padding. w is
// [M,C/g,…].
bool IsMatMulConv(const Attrs& attrs, const Shape& w);

struct ConvLayouts {
  dnnl::memory::desc x, w, y;
};

// Describes y = conv(x, w) + bias.
dnnl::convolution_forward::primitive_desc ConvForward(const ConvGeometry& g, const ConvLayouts& l, bool bias);
// `hint` has the layouts of the forward convolution.
dnnl::convolution_backward_data::primitive_desc ConvBackwardData(const ConvGeometry& g, const ConvLayouts& l,
                                                                 const ConvLayouts& hint);
dnnl::convolution_backward_weights::primitive_desc ConvBackwardWeights(const ConvGeometry& g, const ConvLayouts& l,
                                                                       const ConvLayouts& hint);

// Returns layouts with x and y channels last and weights of any layout. The operands have the type `factors`, the
// result has the type `result` (f32 or bf16).
ConvLayouts ChannelsLastLayouts(ConvKind kind, const ConvGeometry& g, DType factors, DType result = DType::kFloat32);
// Returns the layout of weights that oneDNN chooses for these, or nothing if it has only a reference implementation.
std::optional<dnnl::memory::desc> FindChannelsLastWeights(ConvKind kind, const ConvGeometry& g, DType factors);
// Returns true if such a convolution of bf16, with the same weights, can write bf16.
bool SupportsBf16Output(ConvKind kind, const ConvGeometry& g);

// Encodes a dense blocked layout of weights as an attribute.
std::vector<int64_t> ToInts(const dnnl::memory::desc& layout);
// Decodes the attribute for weights [M,C/g,…] or a matrix. Returns nothing if it is no layout of that shape.
std::optional<dnnl::memory::desc> PackedWeightLayout(const Type& w, int64_t group, const std::vector<int64_t>& ints);

// Returns the type of the weights [C,M,…] of the forward convolution that computes the backward data of one with
// weights [M,C,…]; for a matrix, the transposed type.
Type FlippedWeights(Type w);

// Maps [M,C/g,…] to [g,M/g,C/g,…] if there are groups.
Shape GroupedWeights(Shape w, int64_t group);

// Computes backward weights in float32 with vectors of 16 lanes (conv_weight_grad.cc): from x [N,C,H,W] and
// dy [N,M,P,Q], channels last, to row-major weights [M,C,…]. Returns nothing if oneDNN's kernel is as fast.
std::optional<Kernel> MakeDirectWeightGrad(const ConvGeometry& g, DType factors);

}  // namespace onnxtrain::cpu
