// The product in every step of a recurrence: the states of all samples with the same weights, run after run.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backends/cpu/dnnl_call.h"

namespace onnxtrain::cpu {

class StepProduct {
 public:
  // Of weights [k,n] at these strides; `adds`: onto what is there, instead of in its place.
  struct Spec {
    int64_t rows, k, n;
    Shape strides;
    bool adds;
  };

  // `blocks` parts of spec.rows rows each, which as many threads may multiply at a time; with one block, all threads work on it.
  StepProduct(const Spec& spec, int64_t blocks);

  size_t workspace() const { return packed_ + calls_.size() * scratch_; }
  // Packs the weights, if packed ones are multiplied faster. Must run before Run, in each run of the kernel; the weights and the
  // workspace must stay.
  void Load(const float* weights, std::byte* workspace);
  // y[rows,n] = a[rows,k]·weights, by the thread that has this block.
  void Run(int64_t block, const float* a, float* y) {
    calls_[block]->Run({a, weights_, y, scratchpad_ + block * scratch_});
  }

 private:
  std::vector<std::shared_ptr<DnnlCall>> calls_;  // by block: a call remembers its pointers
  std::shared_ptr<DnnlCall> pack_;                // null: the weights stay as they are
  size_t packed_ = 0, scratch_ = 0;               // bytes
  std::byte* scratchpad_ = nullptr;
  const void* weights_ = nullptr;
};

}  // namespace onnxtrain::cpu
