// Compares batch normalization of channels-last tensors in training with oneDNN's.
#include "backends/cpu/bench/run_node.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

using dnnl::normalization_flags;

constexpr float kEpsilon = 1e-5f;
const auto kFlags = normalization_flags::use_scale | normalization_flags::use_shift;

Type Nhwc(DType dtype, Shape shape) { return {dtype, std::move(shape), Layout::kChannelsLast}; }
Type PerChannel(const Shape& x) { return {DType::kFloat32, {x[1]}}; }

dnnl::memory::desc NhwcDesc(const Type& x) { return {x.shape, cpu::DnnlType(x.dtype), dnnl::memory::format_tag::nhwc}; }

dnnl::batch_normalization_forward::primitive_desc MakeForwardDesc(const Type& x) {
  return {{dnnl::prop_kind::forward_training, NhwcDesc(x), kEpsilon, kFlags}, cpu::Engine()};
}

dnnl::memory MakeChannels(const Type& x) { return DnnlSequence::MakeMemory(cpu::Plain({x.shape[1]})); }

Run MakeOneDnnForward(const Type& x) {
  const auto desc = MakeForwardDesc(x);
  auto sequence = std::make_shared<DnnlSequence>();
  sequence->Add(dnnl::batch_normalization_forward(desc), {{DNNL_ARG_SRC, DnnlSequence::MakeMemory(desc.src_desc())},
                                                          {DNNL_ARG_DST, DnnlSequence::MakeMemory(desc.dst_desc())},
                                                          {DNNL_ARG_MEAN, MakeChannels(x)},
                                                          {DNNL_ARG_VARIANCE, MakeChannels(x)},
                                                          {DNNL_ARG_SCALE, MakeChannels(x)},
                                                          {DNNL_ARG_SHIFT, MakeChannels(x)}});
  return MakeDnnlRun(sequence);
}

Run MakeOneDnnBackward(const Type& x) {
  const dnnl::batch_normalization_backward::primitive_desc desc(
      {dnnl::prop_kind::backward, NhwcDesc(x), NhwcDesc(x), kEpsilon, kFlags}, cpu::Engine(), MakeForwardDesc(x));
  auto sequence = std::make_shared<DnnlSequence>();
  sequence->Add(dnnl::batch_normalization_backward(desc),
                {{DNNL_ARG_SRC, DnnlSequence::MakeMemory(desc.src_desc())},
                 {DNNL_ARG_DIFF_DST, DnnlSequence::MakeMemory(desc.diff_dst_desc())},
                 {DNNL_ARG_DIFF_SRC, DnnlSequence::MakeMemory(desc.diff_src_desc())},
                 {DNNL_ARG_MEAN, MakeChannels(x)},
                 {DNNL_ARG_VARIANCE, MakeChannels(x)},
                 {DNNL_ARG_SCALE, MakeChannels(x)},
                 {DNNL_ARG_SHIFT, MakeChannels(x)},
                 {DNNL_ARG_DIFF_SCALE, MakeChannels(x)},
                 {DNNL_ARG_DIFF_SHIFT, MakeChannels(x)}});
  return MakeDnnlRun(sequence);
}

void CompareCase(const Type& x) {
  const Type channels = PerChannel(x.shape);
  Compare(
      StrCat("batch_norm/forward ", ToString(x)),
      [=] {
        return MakeNodeRun("BatchNorm", {x, channels, channels}, {{"epsilon", double{kEpsilon}}});
      },
      [=] { return MakeOneDnnForward(x); });
  Compare(
      StrCat("batch_norm/backward ", ToString(x)),
      [=] {
        return MakeNodeRun("BatchNormGrad", {x, x, channels, channels, channels}, {});
      },
      [=] { return MakeOneDnnBackward(x); });
}

}  // namespace

void CompareBatchNorm() {
  for (const Shape& x : {Shape{16, 64, 56, 56}, Shape{16, 256, 56, 56}, Shape{16, 512, 7, 7}}) {
    CompareCase(Nhwc(DType::kFloat32, x));
    if (cpu::HasBFloat16()) CompareCase(Nhwc(DType::kBFloat16, x));
  }
}

}  // namespace onnxtrain::bench
