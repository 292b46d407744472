// The product in each step of a recurrence: the states of all samples with the same weights.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backends/cpu/runtime/dnnl_call.h"

namespace onnxtrain::cpu {

class RecurrentGemm {
 public:
  // The weights [k,n] have these strides; `adds`: accumulates into y.
  struct Spec {
    int64_t rows, k, n;
    Shape strides;
    bool adds;
  };

  // `blocks` parts of spec.rows rows each, which as many threads may multiply at a time; with one block, all threads
  // work on it.
  RecurrentGemm(const Spec& spec, int64_t blocks);

  size_t workspace() const { return packed_ + calls_.size() * scratch_; }
  // Packs the weights if that is faster. Call it before Run in each run of the kernel; weights and workspace must
  // outlive the run.
  void Load(const float* weights, std::byte* workspace);
  // Computes y[rows,n] = a[rows,k]·weights for this block, in the calling thread.
  void Run(int64_t block, const float* a, float* y) {
    calls_[block].Run({a, weights_, y, scratchpad_ + block * scratch_});
  }

 private:
  std::vector<DnnlCall> calls_;      // by block
  std::optional<DnnlCall> pack_;     // none: the weights stay as they are
  size_t packed_ = 0, scratch_ = 0;  // bytes
  std::byte* scratchpad_ = nullptr;
  const void* weights_ = nullptr;
};

}  // namespace onnxtrain::cpu
