// What an operator is in libtorch's words, so that its autograd can differentiate it.
#pragma once

#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

// The inputs of a case, float64; undefined where absent.
struct Operands {
  std::vector<at::Tensor> x;
  const Case& c;

  const Attrs& attrs() const { return c.attrs; }
  at::Tensor operator[](size_t i) const { return i < x.size() ? x[i] : at::Tensor(); }
};

// Holds at least the outputs in c.through; others may be undefined.
using TensorVector = std::vector<at::Tensor>;
using Reference = std::function<TensorVector(const Operands&)>;
using References = std::map<std::string_view, Reference>;

const References& AllReferences();
// Returns libtorch's function of one tensor with the operator's name in lower case, or null.
Reference FindByName(std::string_view op);

// The families.
References ElementwiseReferences();
References WindowReferences();
References NeuralReferences();
References ShapeReferences();
References ScatterReferences();
References ResampleReferences();
References RecurrentReferences();

}  // namespace onnxtrain::cases
