// Compares pooling of channels-last tensors with oneDNN's.
#include "backends/cpu/bench/run_node.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;
using Dims = dnnl::memory::dims;

struct Case {
  Shape x;
  int64_t kernel, stride, pad;
};

Shape OutputShape(const Case& c) {
  const auto extent = [&](int64_t in) { return (in + 2 * c.pad - c.kernel) / c.stride + 1; };
  return {c.x[0], c.x[1], extent(c.x[2]), extent(c.x[3])};
}

Attrs PoolAttrs(const Case& c) {
  return {{"kernel_shape", Shape{c.kernel, c.kernel}},
          {"strides", Shape{c.stride, c.stride}},
          {"pads", Shape(4, c.pad)},
          {"dilations", Shape{1, 1}}};
}

Attrs MaxPoolAttrs(const Case& c) {
  Attrs attrs = PoolAttrs(c);
  attrs.Set("index_in_window", int64_t{1});
  return attrs;
}

Attrs GradAttrs(const Case& c) {
  Attrs attrs = PoolAttrs(c);
  attrs.Set("input_shape", c.x);
  return attrs;
}

Type Nhwc(DType dtype, Shape shape) { return {dtype, std::move(shape), Layout::kChannelsLast}; }

dnnl::memory::desc NhwcDesc(DType dtype, const Shape& shape) {
  return {shape, cpu::DnnlType(dtype), dnnl::memory::format_tag::nhwc};
}

// The gradient reads the indices that the forward node writes.
Run MakeMaxGrad(const Case& c, DType dtype) {
  const NodeRunner forward("MaxPool", {Nhwc(dtype, c.x)}, MaxPoolAttrs(c));
  forward.Run();
  auto grad = std::make_shared<NodeRunner>(
      "MaxPoolGrad", std::vector<std::optional<Type>>{Nhwc(dtype, OutputShape(c)), forward.output_type(1)},
      GradAttrs(c));
  grad->SetInput(1, forward.output(1));
  return [grad] { grad->Run(); };
}

dnnl::pooling_forward::primitive_desc MakeForwardDesc(const Case& c, DType dtype, algorithm kind) {
  const Dims window = {c.kernel, c.kernel}, strides = {c.stride, c.stride}, pad = {c.pad, c.pad};
  return {{prop_kind::forward_training, kind, NhwcDesc(dtype, c.x), NhwcDesc(dtype, OutputShape(c)), strides, window,
           pad, pad},
          cpu::Engine()};
}

std::shared_ptr<DnnlSequence> MakeForward(const dnnl::pooling_forward::primitive_desc& desc,
                                          const dnnl::memory& workspace) {
  auto sequence = std::make_shared<DnnlSequence>();
  std::unordered_map<int, dnnl::memory> args = {{DNNL_ARG_SRC, DnnlSequence::MakeMemory(desc.src_desc())},
                                                {DNNL_ARG_DST, DnnlSequence::MakeMemory(desc.dst_desc())}};
  if (desc.workspace_desc().get_size() != 0) args[DNNL_ARG_WORKSPACE] = workspace;
  sequence->Add(dnnl::pooling_forward(desc), std::move(args));
  return sequence;
}

Run MakeOneDnnForward(const Case& c, DType dtype, algorithm kind) {
  const auto desc = MakeForwardDesc(c, dtype, kind);
  return MakeDnnlRun(MakeForward(desc, DnnlSequence::MakeMemory(desc.workspace_desc())));
}

Run MakeOneDnnBackward(const Case& c, DType dtype, algorithm kind) {
  const Dims window = {c.kernel, c.kernel}, strides = {c.stride, c.stride}, pad = {c.pad, c.pad};
  const auto forward = MakeForwardDesc(c, dtype, kind);
  const auto workspace = DnnlSequence::MakeMemory(forward.workspace_desc());
  MakeForward(forward, workspace)->Run();
  const dnnl::pooling_backward::primitive_desc desc(
      {kind, NhwcDesc(dtype, c.x), NhwcDesc(dtype, OutputShape(c)), strides, window, pad, pad}, cpu::Engine(), forward);
  std::unordered_map<int, dnnl::memory> args = {{DNNL_ARG_DIFF_DST, DnnlSequence::MakeMemory(desc.diff_dst_desc())},
                                                {DNNL_ARG_DIFF_SRC, DnnlSequence::MakeMemory(desc.diff_src_desc())}};
  if (forward.workspace_desc().get_size() != 0) args[DNNL_ARG_WORKSPACE] = workspace;
  auto sequence = std::make_shared<DnnlSequence>();
  sequence->Add(dnnl::pooling_backward(desc), std::move(args));
  return MakeDnnlRun(sequence);
}

void CompareCase(const Case& c, DType dtype) {
  const Type x = Nhwc(dtype, c.x), y = Nhwc(dtype, OutputShape(c));
  const std::string what = StrCat(" ", ToString(x), " window ", c.kernel, " stride ", c.stride);
  const auto average = algorithm::pooling_avg_exclude_padding;
  Compare(
      "pool/max" + what, [=] { return MakeNodeRun("MaxPool", {x}, MaxPoolAttrs(c)); },
      [=] { return MakeOneDnnForward(c, dtype, algorithm::pooling_max); });
  Compare(
      "pool/max grad" + what, [=] { return MakeMaxGrad(c, dtype); },
      [=] { return MakeOneDnnBackward(c, dtype, algorithm::pooling_max); });
  Compare(
      "pool/average" + what, [=] { return MakeNodeRun("AveragePool", {x}, PoolAttrs(c)); },
      [=] { return MakeOneDnnForward(c, dtype, average); });
  Compare(
      "pool/average grad" + what, [=] { return MakeNodeRun("AveragePoolGrad", {y}, GradAttrs(c)); },
      [=] { return MakeOneDnnBackward(c, dtype, average); });
}

}  // namespace

void ComparePool() {
  for (const Case& c : {Case{{16, 64, 112, 112}, 3, 2, 1}, Case{{8, 64, 128, 128}, 2, 2, 0}}) {
    CompareCase(c, DType::kFloat32);
    if (cpu::HasBFloat16()) CompareCase(c, DType::kBFloat16);
  }
}

}  // namespace onnxtrain::bench
