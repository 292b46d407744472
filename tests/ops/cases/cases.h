// The one table of operator cases. Every test mode of tests/ops and tests/ops_autograd runs over all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain::cases {

using IntVector = std::vector<int64_t>;  // the value of an attribute

// The same numbers with every standard library.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Bits();
  double Uniform(double low, double high);
  double Normal();
  int64_t Int(int64_t low, int64_t high);  // inclusive

 private:
  uint64_t state_;
};

// `n` values of an input.
using Fill = std::function<std::vector<double>(Rng&, int64_t n)>;

struct Input {
  Type type;
  Fill fill;
  bool differentiable = false;
  bool absent = false;  // an optional input that is left away
};

// Float inputs are written as f32; the f64 modes widen them. `shape` as usual. All are differentiable but Fixed.
Input Normal(Shape shape);
Input Uniform(Shape shape, double low, double high);
// Values at least 0.05 apart from each other and from zero, so that no kink or tie is near.
Input WellSeparated(Shape shape);
Input Positive(Shape shape);                            // in [0.3, 2.3]
Input Values(Shape shape, std::vector<double> values);  // float
Input Fixed(Input input);                               // the same, not differentiated
Input Ints(Shape shape, int64_t low, int64_t high, DType dtype = DType::kInt64);
Input IntValues(Shape shape, std::vector<int64_t> values, DType dtype = DType::kInt64);
Input Bools(Shape shape);
Input Key();  // u32[4]
Input Absent();

struct Case {
  std::string name;  // unique: the operator, then what is special
  std::string op;
  std::vector<Input> inputs;
  Attrs attrs;
  std::vector<int> through = {0};  // the outputs through which gradients are tested
  // Relative to the largest element of the tensor.
  double f32 = 1e-5;     // float32 against another backend
  double finite = 1e-6;  // float64 gradient against central differences
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case>& AllCases();

// The families, one file each.
std::vector<Case> UnaryCases();
std::vector<Case> CollectiveCases();
std::vector<Case> BinaryCases();
std::vector<Case> ReduceCases();
std::vector<Case> MatmulCases();
std::vector<Case> ConvCases();
std::vector<Case> PoolCases();
std::vector<Case> ResampleCases();
std::vector<Case> NormCases();
std::vector<Case> SoftmaxCases();
std::vector<Case> ShapeCases();
std::vector<Case> IndexCases();
std::vector<Case> ScatterCases();
std::vector<Case> RandomCases();
std::vector<Case> LossCases();
std::vector<Case> RecurrentCases();
std::vector<Case> QuantizeCases();

// The graph of a case: inputs "x0", "x1", … and outputs "y0", …. With `wide`, f32 is f64 everywhere.
Graph MakeGraph(const Case& c, bool wide);
// The values of input i in the type that it has in that graph.
HostTensor MakeInput(const Case& c, size_t i, bool wide);
// Cotangents: random tensors of the types of the outputs.
HostTensor MakeCotangent(const Case& c, int output, const Type& type);

// Inputs that gradients are tested for: none where the operator has no gradient.
std::vector<size_t> DifferentiableInputs(const Case& c);
// Adds to the graph of a case: inputs "dy0", … for the outputs in c.through, and outputs "dx0", … for the
// differentiable inputs, the gradients of Σ dy·y.
absl::Status AddGradients(const Case& c, Graph* graph);

}  // namespace onnxtrain::cases
