#include "row_testing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "frontend/base/strings.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {

HostTensor F64(Shape shape, const std::vector<double>& values) {
  return HostTensor::FromDoubles({DType::kFloat64, std::move(shape)}, values);
}
HostTensor I64(Shape shape, const Ints& values) {
  return HostTensor::FromInts({DType::kInt64, std::move(shape)}, values);
}
HostTensor Bools(Shape shape, const Ints& values) {
  return HostTensor::FromInts({DType::kBool, std::move(shape)}, values);
}

HostTensor Noise(Shape shape, double low, double high, uint32_t seed) {
  HostTensor t({DType::kFloat64, std::move(shape)});
  uint32_t state = seed * 2654435761u + 12345u;
  for (int64_t i = 0; i < t.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    t.Set(i, low + (high - low) * (state >> 8) / 16777216.0);
  }
  return t;
}

namespace {

struct Built {
  Graph graph;
  std::map<std::string, HostTensor> feeds;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

void Build(const OpCase& c, Built* built) {
  Builder b(&built->graph);
  std::vector<Val> vals;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const std::string name = StrCat("x", i);
    vals.push_back(b.Input(InputKind::kParameter, name, c.inputs[i].type()));
    built->feeds.emplace(name, c.inputs[i]);
    built->inputs.push_back(vals.back().id());
  }
  for (Val y : b.Ops(c.op, vals, c.attrs)) built->outputs.push_back(y.id());
  ASSERT_TRUE(b.status().ok()) << c.name << ": " << b.status();
}

std::vector<HostTensor> MustInterpret(const Graph& graph, const std::map<std::string, HostTensor>& feeds) {
  auto results = Interpret(graph, feeds);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *std::move(results) : std::vector<HostTensor>(graph.outputs().size());
}

// Σ r·y over the float outputs.
Val Loss(Builder& b, const std::vector<ValueId>& outputs) {
  Val loss;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Val y = b.Wrap(outputs[i]);
    if (!IsFloat(y.dtype())) continue;
    const Val term = ReduceSum(y * b.Constant(Noise(y.shape(), 0.5, 2, 77 + static_cast<uint32_t>(i))), {}, false);
    loss = loss.valid() ? loss + term : term;
  }
  return loss;
}

double LossAt(const Graph& graph, const std::map<std::string, HostTensor>& feeds) {
  return MustInterpret(graph, feeds)[0].At(0);
}

void CompareWithDifferences(const OpCase& c, const Graph& graph, std::map<std::string, HostTensor> feeds,
                            const std::string& input, const HostTensor& gradient) {
  constexpr double kStep = 1e-5;
  const HostTensor original = feeds.at(input);
  for (int64_t i = 0; i < original.size(); ++i) {
    auto shifted = [&](double by) {
      HostTensor moved = original.Clone();
      moved.Set(i, original.At(i) + by);
      feeds.at(input) = moved;
      return LossAt(graph, feeds);
    };
    const double expected = (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
    EXPECT_NEAR(gradient.At(i), expected, 2e-8 * std::max(1.0, std::fabs(expected)) + 1e-8)
        << c.name << ": d/d" << input << "[" << i << "]";
  }
}

}  // namespace

std::vector<HostTensor> RunOp(const OpCase& c) {
  Built built;
  Build(c, &built);
  if (testing::Test::HasFatalFailure()) return {};
  for (ValueId y : built.outputs) built.graph.AddOutput(StrCat("y", built.graph.outputs().size()), y);
  return MustInterpret(built.graph, built.feeds);
}

std::string ListTypes(const std::string& op, const std::vector<std::string>& inputs, Attrs attrs) {
  std::vector<Type> types;
  for (const std::string& text : inputs) {  // "f32[2,3]"
    const size_t open = text.find('[');
    Type type{*ParseDType(text.substr(0, open)), {}};
    for (size_t at = open + 1; at < text.size() && text[at] != ']'; at = text.find_first_of(",]", at) + 1) {
      type.shape.push_back(std::stoll(text.substr(at)));
      if (text[text.find_first_of(",]", at)] == ']') break;
    }
    types.push_back(type);
  }
  std::vector<const Type*> pointers;
  for (const Type& type : types) pointers.push_back(&type);
  const auto result = InferTypes(op, pointers, attrs);
  if (!result.ok()) return StrCat("error: ", ToStd(result.status().message()));
  std::string out;
  for (const Type& type : *result) StrAppend(&out, out.empty() ? "" : " ", ToString(type));
  return out;
}

void CheckGradient(const OpCase& c) {
  Built built;
  Build(c, &built);
  if (testing::Test::HasFatalFailure()) return;
  Graph& graph = built.graph;
  Builder b(&graph);
  const Val loss = Loss(b, built.outputs);
  ASSERT_TRUE(b.status().ok()) << b.status();
  Graph forward = graph;
  forward.AddOutput("loss", loss.id());
  std::vector<ValueId> wrt;
  for (ValueId x : built.inputs) {
    if (IsFloat(graph.type(x).dtype)) wrt.push_back(x);
  }
  const auto gradients = Differentiate(&graph, loss.id(), wrt);
  ASSERT_TRUE(gradients.ok()) << c.name << ": " << gradients.status();
  const absl::Status verified = Verify(graph);
  ASSERT_TRUE(verified.ok()) << c.name << ": " << verified;
  for (const auto& [x, dx] : *gradients) graph.AddOutput(graph.inputs()[graph.value(x).index].name, dx);
  const std::vector<HostTensor> values = MustInterpret(graph, built.feeds);
  EXPECT_FALSE(values.empty()) << c.name << " has no gradient";
  for (size_t i = 0; i < values.size(); ++i)
    CompareWithDifferences(c, forward, built.feeds, graph.outputs()[i].name, values[i]);
}

}  // namespace onnxtrain
