#include <algorithm>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/runtime/dnnl_call.h"

namespace onnxtrain::cpu {
namespace {

using dnnl::memory;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

memory::dims Dims(const Shape& s) { return {s.begin(), s.end()}; }

// Describes a tensor [N,C,…] that is stored as [N,…,C].
memory::desc ChannelsLast(const Shape& extents, DType dtype) {
  Shape strides(extents.size(), 1);
  int64_t step = extents[1];
  for (size_t a = extents.size(); a-- > 2;) {
    strides[a] = step;
    step *= extents[a];
  }
  strides[0] = step;
  return Plain(extents, strides, dtype);
}

}  // namespace

Shape GroupedWeights(Shape w, int64_t group) {
  if (group == 1) return w;
  w[0] /= group;
  w.insert(w.begin(), group);
  return w;
}

Type FlippedWeights(Type w) {
  std::swap(w.shape[0], w.shape[1]);
  return w;
}

ConvGeometry MakeConvGeometry(const Attrs& attrs, Shape x, Shape w, Shape y) {
  const Shape pads = attrs.Ints("pads");
  const auto half = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
  ConvGeometry g{.x = std::move(x), .y = std::move(y), .w = GroupedWeights(std::move(w), attrs.Int("group", 1))};
  g.strides = Dims(attrs.Ints("strides"));
  for (int64_t d : attrs.Ints("dilations")) g.dilations.push_back(d - 1);
  g.begin = memory::dims(pads.begin(), half);
  g.end = memory::dims(half, pads.end());
  return g;
}

ConvGeometry MakeConvGeometry(ConvKind kind, const Graph& graph, const Node& node) {
  const Shape &a = graph.type(node.inputs[0]).shape, &b = graph.type(node.inputs[1]).shape,
              &c = graph.type(node.outputs[0]).shape;
  if (kind == ConvKind::kForward) return MakeConvGeometry(node.attrs, a, b, c);
  return kind == ConvKind::kInputGrad ? MakeConvGeometry(node.attrs, c, b, a) : MakeConvGeometry(node.attrs, a, c, b);
}

bool IsMatMulConv(const Attrs& attrs, const Shape& w) {
  const auto are = [](const Shape& values, int64_t value) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
  };
  return attrs.Int("group", 1) == 1 && are(attrs.Ints("strides"), 1) && are(attrs.Ints("pads"), 0) &&
         are(Shape(w.begin() + 2, w.end()), 1);
}

dnnl::convolution_forward::primitive_desc ConvForward(const ConvGeometry& g, const ConvLayouts& l, bool bias) {
  using Desc = dnnl::convolution_forward::desc;
  const auto attr = UserScratchpad();
  const auto kind = dnnl::prop_kind::forward_training;
  if (bias) {
    return {Desc(kind, kDirect, l.x, l.w, Plain({g.y[1]}), l.y, g.strides, g.dilations, g.begin, g.end), attr,
            Engine()};
  }
  return {Desc(kind, kDirect, l.x, l.w, l.y, g.strides, g.dilations, g.begin, g.end), attr, Engine()};
}

dnnl::convolution_backward_data::primitive_desc ConvBackwardData(const ConvGeometry& g, const ConvLayouts& l,
                                                                 const ConvLayouts& hint) {
  const dnnl::convolution_backward_data::desc desc(kDirect, l.x, l.w, l.y, g.strides, g.dilations, g.begin, g.end);
  return {desc, UserScratchpad(), Engine(), ConvForward(g, hint, false)};
}

dnnl::convolution_backward_weights::primitive_desc ConvBackwardWeights(const ConvGeometry& g, const ConvLayouts& l,
                                                                       const ConvLayouts& hint) {
  const dnnl::convolution_backward_weights::desc desc(kDirect, l.x, l.w, l.y, g.strides, g.dilations, g.begin, g.end);
  return {desc, UserScratchpad(), Engine(), ConvForward(g, hint, false)};
}

ConvLayouts ChannelsLastLayouts(ConvKind kind, const ConvGeometry& g, DType factors, DType result) {
  const auto type = [&](ConvKind of) { return kind == of ? result : factors; };
  return {ChannelsLast(g.x, type(ConvKind::kInputGrad)), AnyLayout(g.w, type(ConvKind::kWeightGrad)),
          ChannelsLast(g.y, type(ConvKind::kForward))};
}

std::optional<memory::desc> FindChannelsLastWeights(ConvKind kind, const ConvGeometry& g, DType factors) {
  const ConvLayouts l = ChannelsLastLayouts(kind, g, factors),
                    hint = ChannelsLastLayouts(ConvKind::kForward, g, factors);
  std::optional<memory::desc> weights;
  const auto unless_reference = [&](const auto& desc, const memory::desc& layout) {
    if (!IsReference(desc)) weights = layout;
  };
  const absl::Status status = CatchDnnlErrors([&] {
    if (kind == ConvKind::kForward) {
      const auto desc = ConvForward(g, l, {});
      unless_reference(desc, desc.weights_desc());
    } else if (kind == ConvKind::kInputGrad) {
      const auto desc = ConvBackwardData(g, l, hint);
      unless_reference(desc, desc.weights_desc());
    } else {
      const auto desc = ConvBackwardWeights(g, l, hint);
      unless_reference(desc, desc.diff_weights_desc());
    }
  });
  return status.ok() ? weights : std::nullopt;
}

bool SupportsBf16Output(ConvKind kind, const ConvGeometry& g) {
  constexpr DType kHalf = DType::kBFloat16;
  const auto weights = FindChannelsLastWeights(kind, g, kHalf);
  if (!weights) return false;
  const ConvLayouts l = ChannelsLastLayouts(kind, g, kHalf, kHalf);
  const auto keeps_weights = [&](const auto& desc) { return !IsReference(desc) && desc.weights_desc() == *weights; };
  bool supports = false;
  const absl::Status status = CatchDnnlErrors([&] {
    supports = kind == ConvKind::kForward
                   ? keeps_weights(ConvForward(g, l, {}))
                   : keeps_weights(ConvBackwardData(g, l, ChannelsLastLayouts(ConvKind::kForward, g, kHalf)));
  });
  return status.ok() && supports;
}

// The attribute lists the strides and padded extents of all axes, then the extent and axis of every block.
std::vector<int64_t> ToInts(const memory::desc& layout) {
  const dnnl_memory_desc_t& d = layout.data;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  std::vector<int64_t> ints(b.strides, b.strides + d.ndims);
  ints.insert(ints.end(), d.padded_dims, d.padded_dims + d.ndims);
  for (int i = 0; i < b.inner_nblks; ++i) {
    ints.push_back(b.inner_blks[i]);
    ints.push_back(b.inner_idxs[i]);
  }
  return ints;
}

std::optional<memory::desc> PackedWeightLayout(const Type& w, int64_t group, const std::vector<int64_t>& ints) {
  const Shape shape = GroupedWeights(w.shape, group);
  const size_t n = shape.size();
  if (ints.size() < 2 * n || ints.size() % 2 != 0 || ints.size() - 2 * n > 2 * DNNL_MAX_NDIMS) return {};
  memory::desc layout = Plain(shape, Strides(shape), w.dtype);
  dnnl_memory_desc_t& d = layout.data;
  dnnl_blocking_desc_t& b = d.format_desc.blocking;
  for (size_t a = 0; a < n; ++a) {
    if (ints[a] < 0 || ints[n + a] < shape[a]) return {};
    b.strides[a] = ints[a];
    d.padded_dims[a] = ints[n + a];
  }
  for (size_t i = 2 * n; i < ints.size(); i += 2) {
    if (ints[i] < 1 || ints[i + 1] < 0 || ints[i + 1] >= static_cast<int64_t>(n)) return {};
    b.inner_blks[b.inner_nblks] = ints[i];
    b.inner_idxs[b.inner_nblks++] = ints[i + 1];
  }
  return layout;
}

}  // namespace onnxtrain::cpu
