#include "backends/cpu/kernels/conv.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/relu.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

// Runs a primitive that may require other layouts than the graph's: reorders inputs before it and the output after it.
// One object may not run concurrently; copies may.
class ReorderedCall {
 public:
  // The last operand is the output. `arg` is a constant DNNL_ARG_….
  struct Operand {
    int arg;
    dnnl::memory::desc plain, wanted;
  };

  ReorderedCall(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                const std::vector<Operand>& operands);

  size_t workspace() const { return workspace_; }

  // Takes two inputs, the bias or null, and the output.
  void Run(const void* a, const void* b, const void* bias, void* out, void* workspace) const;

 private:
  struct Side {
    std::optional<DnnlCall> reorder;  // none if the layouts are equal
    size_t offset = 0;                // offset of the reordered copy in the workspace
    size_t scratch = 0;
  };
  DnnlCall call_;
  std::vector<Side> sides_;
  size_t scratch_ = 0, workspace_ = 0;
};

DnnlCall MakeCall(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                  const std::vector<ReorderedCall::Operand>& operands) {
  std::vector<std::pair<int, dnnl::memory::desc>> arguments;
  for (const auto& o : operands) arguments.emplace_back(o.arg, o.wanted);
  arguments.emplace_back(DNNL_ARG_SCRATCHPAD, scratchpad);
  return {primitive, arguments};
}

ReorderedCall::ReorderedCall(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                             const std::vector<Operand>& operands)
    : call_(MakeCall(primitive, scratchpad, operands)) {
  for (const Operand& o : operands) {
    const bool output = &o == &operands.back();
    Side side{.offset = workspace_};
    if (o.plain != o.wanted) {
      Reorder reorder = MakeReorder(output ? o.wanted : o.plain, output ? o.plain : o.wanted);
      side.scratch = Aligned64(reorder.scratch);
      side.reorder.emplace(std::move(reorder.call));
      workspace_ += Aligned64(o.wanted.get_size());
    }
    sides_.push_back(std::move(side));
  }
  scratch_ = workspace_;
  workspace_ += Aligned64(scratchpad.get_size());
  for (const Side& side : sides_) workspace_ = std::max(workspace_, scratch_ + side.scratch);
}

void ReorderedCall::Run(const void* a, const void* b, const void* bias, void* out, void* workspace) const {
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
    call_.Run({inside(0, a), inside(1, b), bias, y, base + scratch_});
  } else {
    call_.Run({inside(0, a), inside(1, b), y, base + scratch_});
  }
  if (sides_[last].reorder) sides_[last].reorder->Run({y, out, base + scratch_});
}

// Convolutions run in oneDNN. Row-major operands are reordered, in planned workspace, to the layouts of the fastest
// implementation; channels-last tensors and packed weights are read without a copy.

using dnnl::memory;

// Returns true for few channels, which blocked layouts would pad to a whole vector.
bool IsThin(const ConvGeometry& g) { return g.x[1] < 4; }

ConvLayouts Wanted(const ConvGeometry& g, bool plain) {
  if (plain) return {Plain(g.x), Plain(g.w), Plain(g.y)};
  return {AnyLayout(g.x), AnyLayout(g.w), AnyLayout(g.y)};
}

// Returns the primitive for blocked layouts (plain ones if `plain`), unless only the reference implementation has them.
template <typename MakeDesc>
auto Best(const ConvGeometry& g, bool plain, MakeDesc make) {
  const auto desc = make(Wanted(g, plain));
  return IsReference(desc) ? make(Wanted(g, !plain)) : desc;
}

// Returns the kernel for sums over no elements: the result is the bias, or 0.
Kernel MakeEmptyKernel(const KernelContext& c, bool bias) {
  const int64_t n = c.out().elements(), channels = c.out().shape[1];
  const int64_t inner = n == 0 ? 1 : n / c.out().shape[0] / channels;
  return {.run = [=](const Args& args) {
    for (int64_t i = 0; i < n; ++i) args.out()[i] = bias ? args.in(2)[i / inner % channels] : 0.0f;
  }};
}

Kernel Wrap(ReorderedCall call, bool bias) {
  const size_t workspace = call.workspace();
  return {.run =
              [call = std::move(call), bias](const Args& args) {
                call.Run(args.inputs[0], args.inputs[1], bias ? args.inputs[2] : nullptr, args.outputs[0],
                         args.workspace);
              },
          .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareConv(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.in(0).shape, c.in(1).shape, c.out().shape);
  const bool bias = c.has(2);
  if (g.empty()) return MakeEmptyKernel(c, bias);
  const auto desc = Best(g, false, [&](const ConvLayouts& l) { return ConvForward(g, l, bias); });
  std::vector<ReorderedCall::Operand> operands = {{DNNL_ARG_SRC, Plain(g.x), desc.src_desc()},
                                                  {DNNL_ARG_WEIGHTS, Plain(g.w), desc.weights_desc()}};
  if (bias) operands.push_back({DNNL_ARG_BIAS, Plain({g.y[1]}), Plain({g.y[1]})});
  operands.push_back({DNNL_ARG_DST, Plain(g.y), desc.dst_desc()});
  return Wrap(ReorderedCall(dnnl::convolution_forward(desc), desc.scratchpad_desc(), operands), bias);
}

absl::StatusOr<Kernel> PrepareConvTranspose(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.out().shape, c.in(1).shape, c.in(0).shape);
  if (g.empty()) return MakeEmptyKernel(c, false);
  const auto desc = Best(g, IsThin(g), [&](const ConvLayouts& l) { return ConvBackwardData(g, l, l); });
  return Wrap(ReorderedCall(dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
                            {{DNNL_ARG_DIFF_DST, Plain(g.y), desc.diff_dst_desc()},
                             {DNNL_ARG_WEIGHTS, Plain(g.w), desc.weights_desc()},
                             {DNNL_ARG_DIFF_SRC, Plain(g.x), desc.diff_src_desc()}}),
              false);
}

absl::StatusOr<Kernel> PrepareConvWeightGrad(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.in(0).shape, c.out().shape, c.in(1).shape);
  if (g.empty()) return MakeEmptyKernel(c, false);
  const auto desc = Best(g, false, [&](const ConvLayouts& l) { return ConvBackwardWeights(g, l, l); });
  return Wrap(ReorderedCall(dnnl::convolution_backward_weights(desc), desc.scratchpad_desc(),
                            {{DNNL_ARG_SRC, Plain(g.x), desc.src_desc()},
                             {DNNL_ARG_DIFF_DST, Plain(g.y), desc.diff_dst_desc()},
                             {DNNL_ARG_DIFF_WEIGHTS, Plain(g.w), desc.diff_weights_desc()}}),
              false);
}

// --- Channels last

// Runs a primitive on tensors that already have its layouts.
Kernel Direct(const dnnl::primitive& primitive, const memory::desc& scratchpad,
              const std::vector<std::pair<int, memory::desc>>& arguments, bool bias) {
  std::vector<ReorderedCall::Operand> operands;
  for (const auto& [arg, layout] : arguments) operands.push_back({arg, layout, layout});
  return Wrap(ReorderedCall(primitive, scratchpad, operands), bias);
}

absl::Status CheckPacked(const KernelContext& c, const memory::desc& weights) {
  if (c.in(1).bytes() == weights.get_size()) return absl::OkStatus();
  return absl::InternalError("the weights were packed for another layout");
}

absl::StatusOr<Kernel> PrepareConvNhwc(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.in(0).shape, c.in(1).shape, c.out().shape);
  const bool bias = c.has(2);
  const auto desc = ConvForward(g, ChannelsLastLayouts(ConvKind::kForward, g, c.in(0).dtype, c.out().dtype), bias);
  RETURN_IF_ERROR(CheckPacked(c, desc.weights_desc()));
  std::vector<std::pair<int, memory::desc>> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                         {DNNL_ARG_WEIGHTS, desc.weights_desc()}};
  if (bias) arguments.emplace_back(DNNL_ARG_BIAS, desc.bias_desc());
  arguments.emplace_back(DNNL_ARG_DST, desc.dst_desc());
  Kernel conv = Direct(dnnl::convolution_forward(desc), desc.scratchpad_desc(), arguments, bias);
  return c.attrs().String("activation") == "Relu" ? ApplyRelu(std::move(conv), c.out()) : conv;
}

absl::StatusOr<Kernel> PrepareConvTransposeNhwc(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.out().shape, c.in(1).shape, c.in(0).shape);
  const DType factors = c.in(0).dtype;
  const auto desc = ConvBackwardData(g, ChannelsLastLayouts(ConvKind::kInputGrad, g, factors, c.out().dtype),
                                     ChannelsLastLayouts(ConvKind::kForward, g, factors));
  RETURN_IF_ERROR(CheckPacked(c, desc.weights_desc()));
  return Direct(dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
                {{DNNL_ARG_DIFF_DST, desc.diff_dst_desc()},
                 {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                 {DNNL_ARG_DIFF_SRC, desc.diff_src_desc()}},
                false);
}

ReorderedCall ConvWeightGradNhwc(const ConvGeometry& g, DType factors) {
  const auto desc = ConvBackwardWeights(g, ChannelsLastLayouts(ConvKind::kWeightGrad, g, factors),
                                        ChannelsLastLayouts(ConvKind::kForward, g, factors));
  return {dnnl::convolution_backward_weights(desc),
          desc.scratchpad_desc(),
          {{DNNL_ARG_SRC, desc.src_desc(), desc.src_desc()},
           {DNNL_ARG_DIFF_DST, desc.diff_dst_desc(), desc.diff_dst_desc()},
           {DNNL_ARG_DIFF_WEIGHTS, Plain(g.w), desc.diff_weights_desc()}}};
}

// Divides backward weights of bf16 among threads by output channels: every thread copies the gradients of its share to
// contiguous memory and runs a primitive of one thread. Within one primitive, oneDNN's threads synchronize several
// times by spinning, which wastes time while another process occupies a processor. With two threads on an idle machine
// shares are 3 to 10 % slower, up to a third at stride 2. Every share reads all of x: 32 channels reach 0.9 to 1 times
// the rate of 256; at stride 2 0.6 to 0.8 times, and 64 channels 0.75 to 1 times. So there are as many shares as
// threads if each has that many channels, else one.
class SharedWeightGrad {
 public:
  static int Shares(const ConvGeometry& g, DType factors) {
    const int threads = omp_get_max_threads();
    const bool dense = std::all_of(g.strides.begin(), g.strides.end(), [](int64_t s) { return s == 1; });
    const int64_t channels = dense ? 32 : 64;  // the channels of a share are a multiple of this
    const bool fits = threads > 1 && g.w.size() == g.x.size() && g.y[1] % (channels * threads) == 0;
    return fits && factors == DType::kBFloat16 && HasBFloat16() ? threads : 1;
  }

  SharedWeightGrad(ConvGeometry g, int shares) : shares_(shares), row_(g.y[1]), rows_(NumElements(g.y) / row_) {
    g.y[1] = g.w[0] = row_ / shares;
    weights_ = NumElements(g.w);
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);  // primitives are created for the current number of threads
    for (int i = 0; i < shares; ++i) calls_.push_back(ConvWeightGradNhwc(g, DType::kBFloat16));
    omp_set_num_threads(threads);
    copy_ = Aligned64(rows_ * row_ / shares * sizeof(BFloat16));
  }

  size_t workspace() const { return shares_ * Each(); }

  void Run(const Args& args) const {
    Parallel(shares_, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) RunShare(args, share);
    });
  }

 private:
  size_t Each() const { return copy_ + Aligned64(calls_[0].workspace()); }

  void RunShare(const Args& args, int64_t share) const {
    char* mine = static_cast<char*>(args.workspace) + share * Each();
    const int64_t width = row_ / shares_;
    const auto* dy = args.in<BFloat16>(1) + share * width;
    auto* copy = reinterpret_cast<BFloat16*>(mine);
    for (int64_t r = 0; r < rows_; ++r) std::copy_n(dy + r * row_, width, copy + r * width);
    calls_[share].Run(args.inputs[0], copy, nullptr, args.out() + share * weights_, mine + copy_);
  }

  int shares_;
  int64_t row_, rows_;   // channels of dy; elements per channel
  int64_t weights_ = 0;  // weights of a share
  size_t copy_ = 0;      // bytes
  std::vector<ReorderedCall> calls_;
};

absl::StatusOr<Kernel> PrepareConvWeightGradNhwc(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(c.attrs(), c.in(0).shape, c.out().shape, c.in(1).shape);
  const DType factors = c.in(0).dtype;
  if (auto own = MakeDirectWeightGrad(g, factors)) return *std::move(own);
  const int shares = SharedWeightGrad::Shares(g, factors);
  if (shares == 1) return Wrap(ConvWeightGradNhwc(g, factors), false);
  SharedWeightGrad grad(g, shares);
  const size_t workspace = grad.workspace();
  return Kernel{.run = [grad = std::move(grad)](const Args& args) { grad.Run(args); }, .workspace = workspace};
}

bool HasPackedWeights(const KernelContext& c) { return c.in(1).layout == Layout::kPacked; }
bool WritesFloat32(const KernelContext& c) { return c.out().dtype == DType::kFloat32; }

// Returns true for a matrix product, or if oneDNN has an implementation besides the reference.
template <ConvKind kKind>
bool IsFastNhwc(const KernelContext& c) {
  const ConvGeometry g = MakeConvGeometry(kKind, c.graph, c.node);
  if (g.empty()) return false;
  const Shape& w = kKind == ConvKind::kWeightGrad ? c.out().shape : c.in(1).shape;
  return IsMatMulConv(c.attrs(), w) || FindChannelsLastWeights(kKind, g, DType::kFloat32).has_value();
}

}  // namespace

std::span<const KernelRow> ConvKernels() {
  constexpr TypeSet kFactors = kFloat | Only(DType::kBFloat16);
  constexpr Layout kLast = Layout::kChannelsLast;
  constexpr auto kForward = PrepareConvNhwc, kBackwardData = PrepareConvTransposeNhwc,
                 kBackwardWeights = PrepareConvWeightGradNhwc;
  static constexpr KernelRow kRows[] = {
      {"Conv", PrepareConv},
      {"ConvTranspose", PrepareConvTranspose},
      {"ConvWeightGrad", PrepareConvWeightGrad},
      {"Conv", kForward, kFactors, HasPackedWeights, kLast, 0, IsFastNhwc<ConvKind::kForward>},
      {"ConvTranspose", kBackwardData, kFactors, HasPackedWeights, kLast, 0, IsFastNhwc<ConvKind::kInputGrad>},
      {"ConvWeightGrad", kBackwardWeights, kFactors, WritesFloat32, kLast, 0, IsFastNhwc<ConvKind::kWeightGrad>},
      {"cpu.Conv", kForward, kFactors, HasPackedWeights, kLast}};
  return kRows;
}

}  // namespace onnxtrain::cpu
