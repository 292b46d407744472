// The taps of a Resample, axis by axis: the semantics of its attributes, shared by type rule, host evaluation and the
// backends' kernels. Resampling is linear and separable; the transposed taps are its gradient.
#pragma once

#include <cstdint>
#include <vector>

#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// The taps of one axis: y[o] = Σ weight[k]·x[index[k]], k in [begin[o], begin[o + 1]). The indices of an output ascend
// strictly; an output without taps is 0.
struct Taps {
  int64_t axis = 0;
  int64_t in = 0;
  std::vector<int64_t> begin = {0};
  std::vector<int64_t> index;
  std::vector<double> weight;

  int64_t out() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t most() const;  // taps of the output that has most
  Taps Transposed() const;
};

// Returns the taps of a Resample of a tensor of shape x, in the order of the attribute `axes`. The attributes have
// passed the type rule.
std::vector<Taps> ResampleTaps(const Attrs& attrs, const Shape& x);

}  // namespace onnxtrain
