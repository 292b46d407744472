// Sums over what a chain computes, taken while its tiles are in the cache: in parts, as many as the shape says and not as there
// are threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cpu/fused.h"

namespace onnxtrain::cpu {

class ChainSums {
 public:
  ChainSums() = default;
  // Over tensors of `size` elements, at least one.
  ChainSums(const std::vector<ChainSum>& sums, int64_t size);

  const std::vector<ChainSum>& sums() const { return sums_; }
  int64_t parts() const { return parts_; }
  // The first element of a part. Parts are worked on by one thread each.
  int64_t Begin(int64_t part) const;
  size_t workspace() const;  // bytes

  // A run: Start for a part, then Add of its elements in order, for every sum; when all parts are done, Finish.
  void Start(int64_t part, double* workspace) const;
  // `first`: which elements the n at x are.
  void Add(size_t sum, int64_t part, int64_t first, const float* x, int64_t n, double* workspace) const;
  void Finish(size_t sum, double* workspace, float* to) const;

 private:
  int64_t rows() const { return size_ / columns_; }
  bool HasCopies(const ChainSum& sum) const { return sum.by_column || rows() == 1; }
  int64_t Width(const ChainSum& sum) const { return sum.by_column ? period_ : rows(); }
  // The accumulators of a part: Width of them, shared by all parts where each has rows of its own.
  double* Accumulators(size_t sum, int64_t part, double* workspace) const;

  std::vector<ChainSum> sums_;
  std::vector<int64_t> offsets_;  // of the accumulators of a sum; the last: of all
  int64_t size_ = 0, columns_ = 1, parts_ = 1;
  int64_t period_ = 1;            // by column: accumulators, those of a row repeated
  int64_t grain_ = 1;             // parts begin at multiples of it
};

}  // namespace onnxtrain::cpu
