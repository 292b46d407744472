// Runs single operators on the host, and compares gradients with finite differences.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

using Ints = std::vector<int64_t>;

HostTensor F64(Shape shape, const std::vector<double>& values);
HostTensor I64(Shape shape, const Ints& values);
HostTensor Bools(Shape shape, const Ints& values);
// Fixed numbers in (low, high), all different, by a linear congruential generator.
HostTensor Noise(Shape shape, double low, double high, uint32_t seed = 1);

struct OpCase {
  std::string name;  // of the case
  std::string op;
  std::vector<HostTensor> inputs;
  Attrs attrs;
};

// The outputs, by Interpret. The operator must type and evaluate.
std::vector<HostTensor> RunOp(const OpCase& c);
// What InferTypes says, as text: "f64[2,3] i64[2]" or the error.
std::string ListTypes(const std::string& op, const std::vector<std::string>& inputs, Attrs attrs = {});

// Differentiates Σ r·y over all float outputs y, r fixed, by each float input and compares with central differences.
void CheckGradient(const OpCase& c);

}  // namespace onnxtrain
