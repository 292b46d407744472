// Compares packing of f32 weights for products, to f32 and bf16, with oneDNN's reorder.
#include "backends/cpu/bench/run_node.h"
#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/matmul.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

constexpr int64_t kRows = 1024;  // rows of the product

struct Case {
  int64_t k, n;
  bool transposed;
};

Run MakeOneDnn(const Case& c, const dnnl::memory::desc& packed) {
  const auto from = DnnlSequence::MakeMemory(cpu::Plain({c.k, c.n}, c.transposed ? Shape{1, c.k} : Shape{c.n, 1}));
  const auto to = DnnlSequence::MakeMemory(packed);
  auto sequence = std::make_shared<DnnlSequence>();
  sequence->Add(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  return MakeDnnlRun(sequence);
}

void CompareCase(const Case& c, DType to) {
  const auto packed = cpu::FindPackedLayout(kRows, c.k, c.n, to);
  if (!packed) return;  // oneDNN prefers row-major
  const Type weight = {DType::kFloat32, c.transposed ? Shape{c.n, c.k} : Shape{c.k, c.n}};
  const Attrs attrs = {
      {"layout", cpu::ToInts(*packed)}, {"flipped", int64_t{c.transposed}}, {"to", std::string(ToString(to))}};
  Compare(
      StrCat("pack/", ToString(weight), c.transposed ? " transposed" : "", " to ", ToString(to)),
      [=] { return MakeNodeRun("cpu.PackWeight", {weight}, attrs); }, [=] { return MakeOneDnn(c, *packed); });
}

}  // namespace

void ComparePack() {
  for (const Case& c : {Case{768, 768, false}, Case{768, 768, true}, Case{768, 3072, false}, Case{768, 3072, true}}) {
    CompareCase(c, DType::kFloat32);
    if (cpu::HasBFloat16()) CompareCase(c, DType::kBFloat16);
  }
}

}  // namespace onnxtrain::bench
