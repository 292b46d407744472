// Converts the attributes of Resample to the taps of each axis, for type rule, host evaluation and kernels. Resampling
// is linear and separable; the transposed taps compute its gradient.
#pragma once

#include <cstdint>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// The taps of one axis: y[o] = Σ weight[k]·x[index[k]] over k in [begin[o], begin[o + 1]). The indices of one output
// are strictly ascending; an output without taps is 0.
struct Taps {
  int64_t axis = 0;
  int64_t in = 0;
  std::vector<int64_t> begin = {0};
  std::vector<int64_t> index;
  std::vector<double> weight;

  int64_t out() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t most() const;  // the largest number of taps of an output
  Taps Transposed() const;
};

// Returns the taps of a Resample of a tensor of shape x, in the order of the attribute `axes`. Requires attributes that
// have passed the type rule.
std::vector<Taps> ResampleTaps(const Attrs& attrs, const Shape& x);

}  // namespace onnxtrain
