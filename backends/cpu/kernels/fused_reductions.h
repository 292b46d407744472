// Reductions of values of a chain, accumulated while its tiles are in the cache. The parts depend on the shape, not on
// the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cpu/ops/fused.h"

namespace onnxtrain::cpu {

class FusedReductions {
 public:
  FusedReductions() = default;
  // Over tensors of `size` elements, at least one.
  FusedReductions(const std::vector<FusedReduction>& sums, int64_t size);

  const std::vector<FusedReduction>& sums() const { return sums_; }
  int64_t parts() const { return parts_; }
  // Returns the first element of a part. One thread computes a part.
  int64_t Begin(int64_t part) const;
  size_t workspace() const;  // bytes

  // A run calls, for every sum, Start for each part, then Add for its elements in order; after all parts, Finish.
  void Start(int64_t part, double* workspace) const;
  // `first`: index of the first of n elements at x.
  void Add(size_t sum, int64_t part, int64_t first, const float* x, int64_t n, double* workspace) const;
  void Finish(size_t sum, double* workspace, float* to) const;

 private:
  int64_t rows() const { return size_ / columns_; }
  bool HasCopies(const FusedReduction& sum) const { return sum.by_column || rows() == 1; }
  int64_t Width(const FusedReduction& sum) const { return sum.by_column ? period_ : rows(); }
  // Returns the accumulators of a part, Width of them; parts share them where each has its own rows.
  double* Accumulators(size_t sum, int64_t part, double* workspace) const;

  std::vector<FusedReduction> sums_;
  std::vector<int64_t> offsets_;  // of the accumulators of a sum; last: their total
  int64_t size_ = 0, columns_ = 1, parts_ = 1;
  int64_t period_ = 1;  // by column: number of accumulators, a multiple of the columns
  int64_t grain_ = 1;   // parts begin at its multiples
};

}  // namespace onnxtrain::cpu
