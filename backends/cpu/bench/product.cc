// Compares products of bf16 in tiles of AMX with oneDNN's primitive; those of float32 with sgemm, or sgemm with the
// primitive where there are no tiles.
#include "backends/cpu/bench/run_node.h"
#include "backends/cpu/kernels/amx.h"
#include "backends/cpu/kernels/amx_product.h"
#include "backends/cpu/kernels/matmul.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

struct Case {
  int64_t m, k, n;
  bool trans_a, trans_b, packed;
  DType out, in = DType::kBFloat16;

  cpu::Product product() const {
    return cpu::MakeProduct(trans_a ? Shape{k, m} : Shape{m, k}, trans_b ? Shape{n, k} : Shape{k, n}, {m, n}, trans_a,
                            trans_b);
  }
  double operations() const { return 2.0 * static_cast<double>(m * k * n); }
  cpu::Epilogue epilogue() const { return {.in = in, .out = out}; }
  dnnl::memory::desc weight() const {
    const cpu::Product p = product();
    const auto layout = packed ? cpu::FindPackedLayout(m, k, n, in) : std::nullopt;
    return layout ? *layout : cpu::Plain(p.b, p.b_strides, in);
  }
  // Returns nothing for bf16 if there are no tiles on this processor, or oneDNN has another layout for the weight.
  std::optional<cpu::Kernel> kernel() const {
    const dnnl::memory::desc of_weight = weight();
    const auto tiles = cpu::MakeAmxProduct(product(), packed ? &of_weight : nullptr, epilogue());
    return tiles || in == DType::kBFloat16 ? tiles : cpu::MakeSgemm(product(), epilogue());
  }
  bool is_beside_sgemm() const { return in == DType::kFloat32 && cpu::PrefersAmx(m, k, n, in); }
};

Run MakeRun(const Case& c, const cpu::Kernel& kernel) {
  const dnnl::memory::desc weight = c.weight();
  const std::shared_ptr<void> a = MakeBuffer(c.in, c.m * c.k * DTypeSize(c.in)),
                              b = MakeBuffer(c.in, weight.get_size()),
                              y = MakeBuffer(c.out, c.m * c.n * DTypeSize(c.out)),
                              workspace = MakeBuffer(DType::kUInt8, kernel.workspace);
  return [=] {
    void* inputs[] = {a.get(), b.get()};
    void* outputs[] = {y.get()};
    kernel.run(cpu::Args{.inputs = inputs, .outputs = outputs, .workspace = workspace.get()});
  };
}

Run MakeOneDnn(const Case& c) {
  if (c.is_beside_sgemm()) return MakeRun(c, cpu::MakeSgemm(c.product(), c.epilogue()));
  const auto desc = cpu::MakeMatMulDesc(c.product(), c.weight(), c.epilogue());
  auto call = std::make_shared<cpu::DnnlCall>(cpu::MakeMatMulCall(desc, false));
  const std::shared_ptr<void> a = MakeBuffer(c.in, desc.src_desc().get_size()),
                              b = MakeBuffer(c.in, desc.weights_desc().get_size()),
                              y = MakeBuffer(c.out, desc.dst_desc().get_size()),
                              scratch = MakeBuffer(DType::kUInt8, desc.scratchpad_desc().get_size() + 64);
  return [=] { call->Run({a.get(), b.get(), y.get(), scratch.get()}); };
}

}  // namespace

void CompareProduct() {
  constexpr DType kF32 = DType::kFloat32, kBf16 = DType::kBFloat16;
  const Case cases[] = {
      {1024, 576, 1536, false, false, true, kBf16},       {1024, 1536, 576, false, false, true, kF32},
      {1024, 576, 576, false, false, true, kBf16},        {576, 1024, 1536, true, false, false, kF32},
      {1536, 1024, 576, true, false, false, kF32},        {256, 576, 49152, false, true, false, kF32},
      {256, 49152, 576, false, false, false, kF32},       {49152, 256, 576, true, false, false, kF32},
      {1024, 768, 3072, false, false, true, kBf16},       {768, 1024, 3072, true, false, false, kF32},
      {2048, 2048, 5632, false, false, true, kBf16},      {1024, 768, 768, false, false, false, kF32, kF32},
      {1024, 768, 3072, false, false, false, kF32, kF32}, {768, 1024, 3072, true, false, false, kF32, kF32},
      {1024, 3072, 768, false, true, false, kF32, kF32},  {1024, 576, 1536, false, false, false, kF32, kF32},
      {1024, 1536, 576, false, true, false, kF32, kF32},  {1536, 1024, 576, true, false, false, kF32, kF32},
      {256, 576, 49152, false, true, false, kF32, kF32},  {256, 49152, 576, false, false, false, kF32, kF32},
      {49152, 256, 576, true, false, false, kF32, kF32},  {64, 768, 768, false, false, false, kF32, kF32},
      {128, 768, 768, false, false, false, kF32, kF32},   {128, 768, 3072, false, true, false, kF32, kF32},
      {128, 128, 128, false, false, false, kF32, kF32},   {1024, 32, 1024, false, false, false, kF32, kF32},
      {1024, 768, 32, false, false, false, kF32, kF32},   {32, 1024, 1024, true, false, false, kF32, kF32},
  };
  for (const Case& c : cases) {
    if (!c.kernel()) continue;
    Compare(
        StrCat("product/", c.m, " ", c.k, " ", c.n, c.trans_a ? " trans_a" : "", c.trans_b ? " trans_b" : "",
               c.packed ? " packed" : "", " ", ToString(c.in), " ", ToString(c.out)),
        [=] { return MakeRun(c, *c.kernel()); }, [=] { return MakeOneDnn(c); }, c.operations());
  }
}

}  // namespace onnxtrain::bench
