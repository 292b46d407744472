// Convolutions by oneDNN. Tensors of the graph are plain; inside a node they take the layout that the fastest
// implementation wants, in planned workspace.
#include <algorithm>

#include "backends/cpu/dnnl_call.h"
#include "backends/cpu/kernel.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

struct Geometry {
  Shape x, w, y;         // w as oneDNN wants it: [groups, M/g, C/g, …] where there are groups
  Shape plain_w;         // [M, C/g, …]
  memory::dims strides, dilations, begin, end;
};

memory::dims Dims(const Shape& s) { return {s.begin(), s.end()}; }

Geometry GeometryOf(const KernelContext& c, Shape x, Shape w, Shape y) {
  const Attrs& attrs = c.attrs();
  const Shape pads = attrs.Ints("pads");
  const size_t n = pads.size() / 2;
  Geometry g{.x = std::move(x), .w = w, .y = std::move(y), .plain_w = w};
  const int64_t group = attrs.Int("group", 1);
  if (group > 1) {
    g.w[0] /= group;
    g.w.insert(g.w.begin(), group);
  }
  g.strides = Dims(attrs.Ints("strides"));
  for (int64_t d : attrs.Ints("dilations")) g.dilations.push_back(d - 1);
  g.begin = memory::dims(pads.begin(), pads.begin() + n);
  g.end = memory::dims(pads.begin() + n, pads.end());
  return g;
}

// Few channels: blocked layouts would pad them to a whole vector.
bool IsThin(const Geometry& g) { return g.x[1] < 4; }

struct Layouts {
  memory::desc x, w, y;
};

Layouts Wanted(const Geometry& g, bool plain) {
  if (plain) return {Plain(g.x), Plain(g.w), Plain(g.y)};
  return {AnyLayout(g.x), AnyLayout(g.w), AnyLayout(g.y)};
}

dnnl::convolution_forward::primitive_desc ForwardDesc(const Geometry& g, const Layouts& l, bool bias) {
  const auto attr = UserScratchpad();
  if (bias) {
    const dnnl::convolution_forward::desc desc(prop_kind::forward_training, kDirect, l.x, l.w, Plain({g.y[1]}), l.y,
                                               g.strides, g.dilations, g.begin, g.end);
    return {desc, attr, Engine()};
  }
  const dnnl::convolution_forward::desc desc(prop_kind::forward_training, kDirect, l.x, l.w, l.y, g.strides,
                                             g.dilations, g.begin, g.end);
  return {desc, attr, Engine()};
}

dnnl::convolution_backward_data::primitive_desc BackwardDataDesc(const Geometry& g, const Layouts& l) {
  const dnnl::convolution_backward_data::desc desc(kDirect, l.x, l.w, l.y, g.strides, g.dilations, g.begin, g.end);
  return {desc, UserScratchpad(), Engine(), ForwardDesc(g, l, false)};
}

dnnl::convolution_backward_weights::primitive_desc BackwardWeightsDesc(const Geometry& g, const Layouts& l) {
  const dnnl::convolution_backward_weights::desc desc(kDirect, l.x, l.w, l.y, g.strides, g.dilations, g.begin, g.end);
  return {desc, UserScratchpad(), Engine(), ForwardDesc(g, l, false)};
}

// The layouts that are fastest as a rule, unless only the reference implementation knows them.
template <typename MakeDesc>
auto Best(const Geometry& g, bool plain, MakeDesc make) {
  const auto desc = make(Wanted(g, plain));
  return IsReference(desc) ? make(Wanted(g, !plain)) : desc;
}

// Runs a primitive whose arguments may want other layouts than the graph's: inputs are reordered before it, the output
// after it.
class ReorderedCall {
 public:
  // The last operand is the output. `arg` is DNNL_ARG_…
  struct Operand {
    int arg;
    memory::desc plain, wanted;
  };

  ReorderedCall(const dnnl::primitive& primitive, const memory::desc& scratchpad, std::vector<Operand> operands) {
    std::vector<std::pair<int, memory::desc>> arguments;
    for (Operand& o : operands) {
      arguments.emplace_back(o.arg, o.wanted);
      const bool output = &o == &operands.back();
      Side side{.offset = workspace_};
      if (o.plain != o.wanted) {
        const auto& from = output ? o.wanted : o.plain;
        const auto& to = output ? o.plain : o.wanted;
        const dnnl::reorder::primitive_desc reorder(Engine(), from, Engine(), to, UserScratchpad());
        side.scratch = Aligned64(reorder.scratchpad_desc().get_size());
        side.reorder = std::make_shared<DnnlCall>(
            dnnl::reorder(reorder), std::vector<std::pair<int, memory::desc>>{
                                        {DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to},
                                        {DNNL_ARG_SCRATCHPAD, reorder.scratchpad_desc()}});
        workspace_ += Aligned64(o.wanted.get_size());
      }
      sides_.push_back(std::move(side));
    }
    arguments.emplace_back(DNNL_ARG_SCRATCHPAD, scratchpad);
    call_ = std::make_shared<DnnlCall>(primitive, arguments);
    scratch_ = workspace_;
    workspace_ += Aligned64(scratchpad.get_size());
    for (const Side& side : sides_) workspace_ = std::max(workspace_, scratch_ + side.scratch);
  }

  size_t workspace() const { return workspace_; }

  // Two inputs, an optional third, and the output.
  void Run(const void* a, const void* b, const void* bias, void* out, void* workspace) const {
    auto* base = static_cast<char*>(workspace);
    const auto inside = [&](size_t i, const void* outside) -> const void* {
      return sides_[i].reorder ? base + sides_[i].offset : outside;
    };
    const size_t last = sides_.size() - 1;
    const auto enter = [&](size_t i, const void* p) {
      if (sides_[i].reorder) sides_[i].reorder->Run({p, base + sides_[i].offset, base + scratch_});
    };
    enter(0, a);
    enter(1, b);
    const void* y = inside(last, out);
    if (bias != nullptr) {
      call_->Run({inside(0, a), inside(1, b), bias, y, base + scratch_});
    } else {
      call_->Run({inside(0, a), inside(1, b), y, base + scratch_});
    }
    if (sides_[last].reorder) sides_[last].reorder->Run({y, out, base + scratch_});
  }

 private:
  struct Side {
    std::shared_ptr<DnnlCall> reorder;  // null where the layouts agree
    size_t offset = 0;                  // of the reordered copy in the workspace
    size_t scratch = 0;
  };
  std::vector<Side> sides_;
  std::shared_ptr<DnnlCall> call_;
  size_t scratch_ = 0, workspace_ = 0;
};

// What a sum over nothing gives: the bias, or 0. oneDNN takes no empty tensors.
bool IsEmpty(const Geometry& g) { return NumElements(g.x) == 0 || NumElements(g.w) == 0 || NumElements(g.y) == 0; }

Kernel OfNothing(const KernelContext& c, bool bias) {
  const int64_t n = c.out().elements(), channels = c.out().shape[1];
  const int64_t inner = n == 0 ? 1 : n / c.out().shape[0] / channels;
  return {.run = [=](const Args& args) {
    for (int64_t i = 0; i < n; ++i) args.out()[i] = bias ? args.in(2)[i / inner % channels] : 0.0f;
  }};
}

Kernel Wrap(ReorderedCall call, bool bias) {
  const size_t workspace = call.workspace();
  return {.run = [call = std::move(call), bias](const Args& args) {
    call.Run(args.inputs[0], args.inputs[1], bias ? args.inputs[2] : nullptr, args.outputs[0], args.workspace);
  }, .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareConv(const KernelContext& c) {
  const Geometry g = GeometryOf(c, c.in(0).shape, c.in(1).shape, c.out().shape);
  const bool bias = c.has(2);
  if (IsEmpty(g)) return OfNothing(c, bias);
  const auto desc = Best(g, false, [&](const Layouts& l) { return ForwardDesc(g, l, bias); });
  std::vector<ReorderedCall::Operand> operands = {{DNNL_ARG_SRC, Plain(g.x), desc.src_desc()},
                                                  {DNNL_ARG_WEIGHTS, Plain(g.w), desc.weights_desc()}};
  if (bias) operands.push_back({DNNL_ARG_BIAS, Plain({g.y[1]}), Plain({g.y[1]})});
  operands.push_back({DNNL_ARG_DST, Plain(g.y), desc.dst_desc()});
  return Wrap(ReorderedCall(dnnl::convolution_forward(desc), desc.scratchpad_desc(), operands), bias);
}

absl::StatusOr<Kernel> PrepareConvTranspose(const KernelContext& c) {
  const Geometry g = GeometryOf(c, c.out().shape, c.in(1).shape, c.in(0).shape);
  if (IsEmpty(g)) return OfNothing(c, false);
  const auto desc = Best(g, IsThin(g), [&](const Layouts& l) { return BackwardDataDesc(g, l); });
  return Wrap(ReorderedCall(dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
                            {{DNNL_ARG_DIFF_DST, Plain(g.y), desc.diff_dst_desc()},
                             {DNNL_ARG_WEIGHTS, Plain(g.w), desc.weights_desc()},
                             {DNNL_ARG_DIFF_SRC, Plain(g.x), desc.diff_src_desc()}}),
              false);
}

absl::StatusOr<Kernel> PrepareConvWeightGrad(const KernelContext& c) {
  const Geometry g = GeometryOf(c, c.in(0).shape, c.out().shape, c.in(1).shape);
  if (IsEmpty(g)) return OfNothing(c, false);
  const auto desc = Best(g, false, [&](const Layouts& l) { return BackwardWeightsDesc(g, l); });
  return Wrap(ReorderedCall(dnnl::convolution_backward_weights(desc), desc.scratchpad_desc(),
                            {{DNNL_ARG_SRC, Plain(g.x), desc.src_desc()},
                             {DNNL_ARG_DIFF_DST, Plain(g.y), desc.diff_dst_desc()},
                             {DNNL_ARG_DIFF_WEIGHTS, Plain(g.w), desc.diff_weights_desc()}}),
              false);
}

}  // namespace

std::span<const KernelRow> ConvKernels() {
  static constexpr KernelRow kRows[] = {
      {"Conv", PrepareConv}, {"ConvTranspose", PrepareConvTranspose}, {"ConvWeightGrad", PrepareConvWeightGrad}};
  return kRows;
}

}  // namespace onnxtrain::cpu
