#include "tests/ops/cases/cases.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain::cases {

// SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t Rng::Bits() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
double Rng::Uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(Bits() >> 11) * 0x1p-53;
}
double Rng::Normal() {
  const double r = std::sqrt(-2 * std::log(1 - Uniform(0, 1)));
  return r * std::cos(2 * M_PI * Uniform(0, 1));
}
int64_t Rng::Int(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(Bits() % static_cast<uint64_t>(high - low + 1));
}

namespace {

template <typename F>
Fill Each(F draw) {
  return [draw](Rng& rng, int64_t n) {
    std::vector<double> values(n);
    for (double& v : values) v = draw(rng);
    return values;
  };
}

Fill FillWith(std::vector<double> values) {
  return [values = std::move(values)](Rng&, int64_t n) { return values; };
}

// -0.1, 0.1, -0.2, 0.2, … shuffled and shifted a little.
std::vector<double> FillWellSeparated(Rng& rng, int64_t n) {
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i)
    values[i] = (i % 2 == 0 ? 0.1 : -0.1) * static_cast<double>(i / 2 + 1) + rng.Uniform(-.02, .02);
  for (int64_t i = n - 1; i > 0; --i) std::swap(values[i], values[rng.Int(0, i)]);
  return values;
}

Input Float(Shape shape, Fill fill) { return {{DType::kFloat32, std::move(shape)}, std::move(fill), true}; }

uint64_t HashSeed(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001B3u;
  return hash;
}

DType Widened(DType dtype, bool wide) { return wide && dtype == DType::kFloat32 ? DType::kFloat64 : dtype; }

// Attributes that name the float type follow it.
Attrs Widened(Attrs attrs, bool wide) {
  for (std::string name : {"to", "dtype"}) {
    if (wide && attrs.String(name) == "f32") attrs.Set(name, std::string("f64"));
  }
  return attrs;
}

}  // namespace

Input Normal(Shape shape) {
  return Float(std::move(shape), Each([](Rng& r) { return r.Normal(); }));
}
Input Uniform(Shape shape, double low, double high) {
  return Float(std::move(shape), Each([=](Rng& r) { return r.Uniform(low, high); }));
}
Input WellSeparated(Shape shape) { return Float(std::move(shape), FillWellSeparated); }
Input Positive(Shape shape) { return Uniform(std::move(shape), 0.3, 2.3); }
Input Values(Shape shape, std::vector<double> values) { return Float(std::move(shape), FillWith(std::move(values))); }
Input Fixed(Input input) {
  input.differentiable = false;
  return input;
}
Input Ints(Shape shape, int64_t low, int64_t high, DType dtype) {
  return {{dtype, std::move(shape)}, Each([=](Rng& r) { return static_cast<double>(r.Int(low, high)); })};
}
Input IntValues(Shape shape, std::vector<int64_t> values, DType dtype) {
  return {{dtype, std::move(shape)}, FillWith({values.begin(), values.end()})};
}
Input Bools(Shape shape) { return Ints(std::move(shape), 0, 1, DType::kBool); }
Input Key() { return Ints({4}, 0, 0xFFFFFFFF, DType::kUInt32); }
Input Absent() { return {.absent = true}; }

const std::vector<Case>& AllCases() {
  static const auto* all = [] {
    auto* cases = new std::vector<Case>;
    for (auto family : {CollectiveCases, UnaryCases, BinaryCases, ReduceCases, MatmulCases, ConvCases, PoolCases,
                        ResampleCases, NormCases, SoftmaxCases, ShapeCases, IndexCases, ScatterCases, RandomCases,
                        LossCases, RecurrentCases, QuantizeCases}) {
      for (Case& c : family()) cases->push_back(std::move(c));
    }
    return cases;
  }();
  return *all;
}

Graph MakeGraph(const Case& c, bool wide) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Type& type = c.inputs[i].type;
    inputs.push_back(c.inputs[i].absent
                         ? Val()
                         : b.Input(InputKind::kFeed, StrCat("x", i), {Widened(type.dtype, wide), type.shape}));
  }
  b.set_source(c.name);
  const std::vector<Val> outputs = b.Ops(c.op, inputs, Widened(c.attrs, wide));
  // An error here leaves a graph without outputs, which the type rule's test reports.
  for (size_t i = 0; i < outputs.size() && b.status().ok(); ++i) graph.AddOutput(StrCat("y", i), outputs[i].id());
  return graph;
}

HostTensor MakeInput(const Case& c, size_t i, bool wide) {
  const Input& input = c.inputs[i];
  Rng rng(HashSeed(StrCat(c.name, "/", i)));
  return HostTensor::FromDoubles({Widened(input.type.dtype, wide), input.type.shape},
                                 input.fill(rng, input.type.elements()));
}

HostTensor MakeCotangent(const Case& c, int output, const Type& type) {
  Rng rng(HashSeed(StrCat(c.name, "/dy", output)));
  std::vector<double> values(type.elements());
  for (double& v : values) v = rng.Normal();
  return HostTensor::FromDoubles(type, values);
}

std::vector<size_t> DifferentiableInputs(const Case& c) {
  std::vector<size_t> list;
  const GradStatus status = FindOp(c.op)->grad_status;
  if (status == GradStatus::kZero || status == GradStatus::kNotDifferentiable) return list;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].differentiable) list.push_back(i);
  }
  return list;
}

absl::Status AddGradients(const Case& c, Graph* graph) {
  Builder b(graph);
  Val loss;
  for (int o : c.through) {
    const Val y = b.Wrap(graph->FindOutput(StrCat("y", o))->value);
    const Val term = ReduceSum(y * b.Input(InputKind::kFeed, StrCat("dy", o), y.type()), {}, false);
    loss = loss ? loss + term : term;
  }
  RETURN_IF_ERROR(b.status());
  std::vector<ValueId> wrt;
  for (size_t i : DifferentiableInputs(c)) wrt.push_back(graph->FindInput(StrCat("x", i))->value);
  ASSIGN_OR_RETURN(const auto gradients, Differentiate(graph, loss.id(), wrt));
  for (size_t i : DifferentiableInputs(c)) {
    const auto it = gradients.find(graph->FindInput(StrCat("x", i))->value);
    if (it == gradients.end()) return absl::NotFoundError(StrCat(c.name, ": no gradient of input ", i));
    graph->AddOutput(StrCat("dx", i), it->second);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain::cases
