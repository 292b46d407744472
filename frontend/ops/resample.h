// What an element of a Resample takes from its input, axis by axis: the meaning of the operator's attributes, shared by
// type rule, host evaluation and the backends' kernels. Resampling is linear and separable; the transposed taps are its
// gradient.
#pragma once

#include <cstdint>
#include <vector>

#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// One axis: y[o] = Σ weight[k]·x[index[k]], k in [begin[o], begin[o + 1]). Indices of one output ascend, and none
// occurs twice; an output may have no tap at all (it is 0).
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

// Of a Resample of a tensor of shape x, whose attributes have passed the type rule; in the order of the attribute
// `axes`.
std::vector<Taps> ResampleTaps(const Attrs& attrs, const Shape& x);
// The shape of x, given the attributes of a ResampleGrad and the shape of dy.
Shape ResampledFrom(const Attrs& attrs, const Shape& dy);

}  // namespace onnxtrain
