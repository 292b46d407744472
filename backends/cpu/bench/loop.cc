// Compares a short loop of Parallel with oneDNN's y = 0.5·x + 1. While another process occupies a CPU, it shows the
// cost of waiting for late threads.
#include "backends/cpu/bench/run_node.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

constexpr float kScale = 0.5f, kOffset = 1.0f;

Run MakeOwn(int64_t n) {
  const size_t bytes = n * sizeof(float);
  return [n, x = MakeBuffer(DType::kFloat32, bytes), y = MakeBuffer(DType::kFloat32, bytes)] {
    const auto* from = static_cast<const float*>(x.get());
    auto* to = static_cast<float*>(y.get());
    cpu::Parallel(n, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = kScale * from[i] + kOffset;
    });
  };
}

Run MakeOneDnn(int64_t n) {
  const auto from = DnnlSequence::MakeMemory(cpu::Plain({n})), to = DnnlSequence::MakeMemory(cpu::Plain({n}));
  const dnnl::eltwise_forward::desc desc(dnnl::prop_kind::forward_inference, dnnl::algorithm::eltwise_linear,
                                         from.get_desc(), kScale, kOffset);
  auto sequence = std::make_shared<DnnlSequence>();
  sequence->Add(dnnl::eltwise_forward({desc, cpu::UserScratchpad(), cpu::Engine()}),
                {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
  return MakeDnnlRun(sequence);
}

}  // namespace

void CompareLoop() {
  for (const int64_t n : {100'000, 1'000'000, 4'000'000})
    Compare(
        StrCat("loop/", n), [n] { return MakeOwn(n); }, [n] { return MakeOneDnn(n); });
}

}  // namespace onnxtrain::bench
