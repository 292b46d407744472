// Convolutions by oneDNN. Those over plain tensors take, inside the node and in planned workspace, the layout that the
// fastest implementation wants; those over channels-last tensors have it already.
#include <algorithm>

#include "backends/cpu/channels_last_ops.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/reorder.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

using dnnl::memory;

// Few channels: blocked layouts would pad them to a whole vector.
bool IsThin(const ConvGeometry& g) { return g.x[1] < 4; }

ConvLayouts Wanted(const ConvGeometry& g, bool plain) {
  if (plain) return {Plain(g.x), Plain(g.w), Plain(g.y)};
  return {AnyLayout(g.x), AnyLayout(g.w), AnyLayout(g.y)};
}

// The layouts that are fastest as a rule, unless only the reference implementation knows them.
template <typename MakeDesc>
auto Best(const ConvGeometry& g, bool plain, MakeDesc make) {
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
        const Reorder reorder = MakeReorder(output ? o.wanted : o.plain, output ? o.plain : o.wanted);
        side.scratch = Aligned64(reorder.scratch);
        side.reorder = reorder.call;
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

// What a sum over nothing gives: the bias, or 0.
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
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.in(0).shape, c.in(1).shape, c.out().shape);
  const bool bias = c.has(2);
  if (g.empty()) return OfNothing(c, bias);
  const auto desc = Best(g, false, [&](const ConvLayouts& l) { return ConvForward(g, l, {.bias = bias}); });
  std::vector<ReorderedCall::Operand> operands = {{DNNL_ARG_SRC, Plain(g.x), desc.src_desc()},
                                                  {DNNL_ARG_WEIGHTS, Plain(g.w), desc.weights_desc()}};
  if (bias) operands.push_back({DNNL_ARG_BIAS, Plain({g.y[1]}), Plain({g.y[1]})});
  operands.push_back({DNNL_ARG_DST, Plain(g.y), desc.dst_desc()});
  return Wrap(ReorderedCall(dnnl::convolution_forward(desc), desc.scratchpad_desc(), operands), bias);
}

absl::StatusOr<Kernel> PrepareConvTranspose(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.out().shape, c.in(1).shape, c.in(0).shape);
  if (g.empty()) return OfNothing(c, false);
  const auto desc = Best(g, IsThin(g), [&](const ConvLayouts& l) { return ConvBackwardData(g, l, l); });
  return Wrap(ReorderedCall(dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
                            {{DNNL_ARG_DIFF_DST, Plain(g.y), desc.diff_dst_desc()},
                             {DNNL_ARG_WEIGHTS, Plain(g.w), desc.weights_desc()},
                             {DNNL_ARG_DIFF_SRC, Plain(g.x), desc.diff_src_desc()}}),
              false);
}

absl::StatusOr<Kernel> PrepareConvWeightGrad(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.in(0).shape, c.out().shape, c.in(1).shape);
  if (g.empty()) return OfNothing(c, false);
  const auto desc = Best(g, false, [&](const ConvLayouts& l) { return ConvBackwardWeights(g, l, l); });
  return Wrap(ReorderedCall(dnnl::convolution_backward_weights(desc), desc.scratchpad_desc(),
                            {{DNNL_ARG_SRC, Plain(g.x), desc.src_desc()},
                             {DNNL_ARG_DIFF_DST, Plain(g.y), desc.diff_dst_desc()},
                             {DNNL_ARG_DIFF_WEIGHTS, Plain(g.w), desc.diff_weights_desc()}}),
              false);
}

// --- Channels last ----------------------------------------------------------------------------------------------------

// A node whose tensors already have the layouts that its primitive wants.
Kernel Direct(const dnnl::primitive& primitive, const memory::desc& scratchpad,
              std::vector<std::pair<int, memory::desc>> arguments, bool bias) {
  std::vector<ReorderedCall::Operand> operands;
  for (const auto& [arg, layout] : arguments) operands.push_back({arg, layout, layout});
  return Wrap(ReorderedCall(primitive, scratchpad, operands), bias);
}

absl::Status CheckPacked(const KernelContext& c, const memory::desc& weights) {
  if (c.in(1).bytes() == weights.get_size()) return absl::OkStatus();
  return absl::InternalError("the weights were packed for another layout");
}

absl::StatusOr<Kernel> PrepareLastConv(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), ChannelsFirstShape(c.in(0).shape), c.attrs().Ints("weight_shape"),
                                          ChannelsFirstShape(c.out().shape));
  const bool bias = c.has(2);
  const auto desc = ConvForward(g, ChannelsLastLayouts(ConvKind::kForward, g, c.in(0).dtype, c.out().dtype), {.bias = bias, .relu = c.attrs().String("activation") == "Relu"});
  RETURN_IF_ERROR(CheckPacked(c, desc.weights_desc()));
  std::vector<std::pair<int, memory::desc>> arguments = {{DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}};
  if (bias) arguments.emplace_back(DNNL_ARG_BIAS, desc.bias_desc());
  arguments.emplace_back(DNNL_ARG_DST, desc.dst_desc());
  return Direct(dnnl::convolution_forward(desc), desc.scratchpad_desc(), arguments, bias);
}

absl::StatusOr<Kernel> PrepareLastConvTranspose(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), ChannelsFirstShape(c.out().shape), c.attrs().Ints("weight_shape"),
                                          ChannelsFirstShape(c.in(0).shape));
  const DType factors = c.in(0).dtype;
  const auto desc = ConvBackwardData(g, ChannelsLastLayouts(ConvKind::kInputGrad, g, factors, c.out().dtype),
                                     ChannelsLastLayouts(ConvKind::kForward, g, factors));
  RETURN_IF_ERROR(CheckPacked(c, desc.weights_desc()));
  return Direct(dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
                {{DNNL_ARG_DIFF_DST, desc.diff_dst_desc()}, {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                 {DNNL_ARG_DIFF_SRC, desc.diff_src_desc()}},
                false);
}

absl::StatusOr<Kernel> PrepareLastConvWeightGrad(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), ChannelsFirstShape(c.in(0).shape), c.out().shape,
                                          ChannelsFirstShape(c.in(1).shape));
  const DType factors = c.in(0).dtype;
  const auto desc = ConvBackwardWeights(g, ChannelsLastLayouts(ConvKind::kWeightGrad, g, factors),
                                        ChannelsLastLayouts(ConvKind::kForward, g, factors));
  return Wrap(ReorderedCall(dnnl::convolution_backward_weights(desc), desc.scratchpad_desc(),
                            {{DNNL_ARG_SRC, desc.src_desc(), desc.src_desc()},
                             {DNNL_ARG_DIFF_DST, desc.diff_dst_desc(), desc.diff_dst_desc()},
                             {DNNL_ARG_DIFF_WEIGHTS, Plain(g.w), desc.diff_weights_desc()}}),
              false);
}

absl::StatusOr<Kernel> PreparePackConvWeight(const KernelContext& c) {
  const int64_t group = c.attrs().Int("group");
  const auto packed = PackedConvLayout(c.in(), group, c.attrs().Ints("layout"));
  if (!packed) return absl::InternalError("no layout of these weights");
  const Shape plain = GroupedWeights(c.in().shape, group);
  return ReorderKernel(Plain(plain, Strides(plain), c.in().dtype), *packed);
}

}  // namespace

std::span<const KernelRow> ConvKernels() {
  constexpr TypeSet kFactors = kFloat | Only(DType::kBFloat16), kPacked = kFactors | Only(DType::kUInt8);
  static constexpr KernelRow kRows[] = {{"Conv", PrepareConv},
                                        {"ConvTranspose", PrepareConvTranspose},
                                        {"ConvWeightGrad", PrepareConvWeightGrad},
                                        {"cpu.Conv", PrepareLastConv, kPacked},
                                        {"cpu.ConvTranspose", PrepareLastConvTranspose, kPacked},
                                        {"cpu.ConvWeightGrad", PrepareLastConvWeightGrad, kFactors},
                                        {"cpu.PackConvWeight", PreparePackConvWeight, kPacked}};
  return kRows;
}

}  // namespace onnxtrain::cpu
