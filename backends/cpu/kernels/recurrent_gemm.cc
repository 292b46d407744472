#include "backends/cpu/kernels/recurrent_gemm.h"

#include <omp.h>

#include <algorithm>

namespace onnxtrain::cpu {
namespace {

dnnl::matmul::primitive_desc Describe(const RecurrentGemm::Spec& spec, const dnnl::memory::desc& weights) {
  dnnl::primitive_attr attr = UserScratchpad();
  if (spec.adds) {
    dnnl::post_ops ops;
    ops.append_sum(1);
    attr.set_post_ops(ops);
  }
  return {dnnl::matmul::desc(Plain({spec.rows, spec.k}), weights, Plain({spec.rows, spec.n})), attr, Engine()};
}

// oneDNN's primitives run in as many threads as there were when they were made.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;

 private:
  const int threads_ = omp_get_max_threads();
};

}  // namespace

RecurrentGemm::RecurrentGemm(const Spec& spec, int64_t blocks) {
  std::unique_ptr<OneThread> alone = blocks > 1 ? std::make_unique<OneThread>() : nullptr;
  const auto plain = Plain({spec.k, spec.n}, spec.strides);
  const auto best = Describe(spec, AnyLayout({spec.k, spec.n}));
  const bool packs = !IsReference(best) && best.weights_desc() != plain;
  const auto desc = packs ? best : Describe(spec, plain);
  const dnnl::matmul product(desc);
  for (int64_t b = 0; b < blocks; ++b) {
    calls_.emplace_back(product,
                        std::vector<std::pair<int, dnnl::memory::desc>>{{DNNL_ARG_SRC, desc.src_desc()},
                                                                        {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                        {DNNL_ARG_DST, desc.dst_desc()},
                                                                        {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}});
  }
  scratch_ = Aligned64(desc.scratchpad_desc().get_size());
  alone.reset();
  if (!packs) return;
  Reorder reorder = MakeReorder(plain, desc.weights_desc());
  pack_.emplace(std::move(reorder.call));
  packed_ = Aligned64(desc.weights_desc().get_size());
  scratch_ = std::max(scratch_, Aligned64(reorder.scratch));
}

void RecurrentGemm::Load(const float* weights, std::byte* workspace) {
  scratchpad_ = workspace + packed_;
  weights_ = !pack_ ? static_cast<const void*>(weights) : workspace;
  if (pack_) pack_->Run({weights, workspace, scratchpad_});
}

}  // namespace onnxtrain::cpu
