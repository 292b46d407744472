// Compares MakeDirectWeightGrad with oneDNN's backward weights and the reorder to plain weights.
#include "backends/cpu/kernels/conv.h"

#include "backends/cpu/bench/run_node.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

using cpu::ConvGeometry;
using cpu::ConvKind;

struct Case {
  int64_t batch, channels, size, outputs, kernel, stride;
};

ConvGeometry MakeGeometry(const Case& c) {
  const int64_t out = (c.size + 2 * (c.kernel / 2) - c.kernel) / c.stride + 1, pad = c.kernel / 2;
  return {.x = {c.batch, c.channels, c.size, c.size},
          .y = {c.batch, c.outputs, out, out},
          .w = {c.outputs, c.channels, c.kernel, c.kernel},
          .strides = {c.stride, c.stride},
          .dilations = {0, 0},
          .begin = {pad, pad},
          .end = {pad, pad}};
}

size_t FloatBytes(const Shape& shape) { return NumElements(shape) * sizeof(float); }

Run MakeOwn(const ConvGeometry& g, const cpu::Kernel& kernel) {
  const auto x = MakeBuffer(DType::kFloat32, FloatBytes(g.x)), dy = MakeBuffer(DType::kFloat32, FloatBytes(g.y)),
             dw = MakeBuffer(DType::kFloat32, FloatBytes(g.w)), workspace = MakeBuffer(DType::kUInt8, kernel.workspace);
  return [=] {
    void* const inputs[] = {x.get(), dy.get()};
    void* const outputs[] = {dw.get()};
    kernel.run({.inputs = inputs, .outputs = outputs, .workspace = workspace.get()});
  };
}

Run MakeOneDnn(const ConvGeometry& g) {
  const auto desc = ConvBackwardWeights(g, ChannelsLastLayouts(ConvKind::kWeightGrad, g, DType::kFloat32),
                                        ChannelsLastLayouts(ConvKind::kForward, g, DType::kFloat32));
  auto sequence = std::make_shared<DnnlSequence>();
  const auto dw = DnnlSequence::MakeMemory(desc.diff_weights_desc()), plain = DnnlSequence::MakeMemory(cpu::Plain(g.w));
  sequence->Add(dnnl::convolution_backward_weights(desc),
                {{DNNL_ARG_SRC, DnnlSequence::MakeMemory(desc.src_desc())},
                 {DNNL_ARG_DIFF_DST, DnnlSequence::MakeMemory(desc.diff_dst_desc())},
                 {DNNL_ARG_DIFF_WEIGHTS, dw},
                 {DNNL_ARG_SCRATCHPAD, DnnlSequence::MakeMemory(desc.scratchpad_desc())}});
  if (dw.get_desc() != plain.get_desc())
    sequence->Add(dnnl::reorder(dw, plain), {{DNNL_ARG_FROM, dw}, {DNNL_ARG_TO, plain}});
  return MakeDnnlRun(sequence);
}

}  // namespace

void CompareConvWeightGrad() {
  constexpr Case kCases[] = {{16, 64, 56, 64, 3, 1},   {16, 64, 56, 64, 1, 1},  {16, 128, 28, 128, 3, 1},
                             {16, 128, 56, 128, 3, 2}, {16, 256, 56, 64, 1, 1}, {16, 256, 56, 128, 1, 2},
                             {64, 16, 28, 32, 3, 1}};
  for (const Case& c : kCases) {
    const ConvGeometry g = MakeGeometry(c);
    const auto kernel = cpu::MakeDirectWeightGrad(g, DType::kFloat32);
    if (!kernel) continue;  // the backend uses oneDNN
    Compare(
        StrCat("conv_weight_grad/f32 ", ToString(g.x), " ", ToString(g.w), " stride ", c.stride),
        [=] { return MakeOwn(g, *kernel); }, [=] { return MakeOneDnn(g); });
  }
}

}  // namespace onnxtrain::bench
