// Gradients against central differences in float64, on the host. The loss weighs all outputs, so that gradients arrive
// at statistics and log-probabilities as well. tests/ops compares operators without a host evaluation on the backends.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {
namespace {

struct Example {
  std::string op;
  std::vector<Type> inputs;
  Attrs attrs;
};

// Operators with a host evaluation and a gradient formula.
std::vector<Example> Examples() {
  constexpr DType f = DType::kFloat64, i = DType::kInt64;
  const Shape x = {2, 4, 5, 6};
  const Attrs axis = {{"axis", int64_t{1}}};
  const Attrs labels = {{"ignore_index", int64_t{1}}, {"label_smoothing", 0.1}};
  return {
      {"BatchNorm", {{f, x}, {f, {4}}, {f, {4}}}, {}},
      {"BatchNormInference", {{f, x}, {f, {4}}, {f, {4}}, {f, {4}}, {f, {4}}}, {}},
      {"LayerNorm", {{f, {3, 2, 4}}, {f, {2, 4}}, {f, {2, 4}}}, axis},
      {"LayerNorm", {{f, {3, 2, 4}}, {f, {2, 4}}}, axis},
      {"RmsNorm", {{f, {3, 2, 4}}, {f, {2, 4}}}, axis},
      {"RmsNormGrad", {{f, {3, 2, 4}}, {f, {3, 2, 4}}, {f, {2, 4}}, {f, {3, 1, 1}}}, axis},
      {"Softmax", {{f, {3, 4, 2}}}, axis},
      {"LogSoftmax", {{f, {3, 4, 2}}}, axis},
      {"SoftmaxGrad", {{f, {3, 4, 2}}, {f, {3, 4, 2}}}, axis},
      {"LogSoftmaxGrad", {{f, {3, 4, 2}}, {f, {3, 4, 2}}}, axis},
      {"Attention", {{f, {2, 3, 4, 5}}, {f, {2, 3, 6, 5}}, {f, {2, 3, 6, 2}}, {f, {2, 1, 1, 6}}}, {{"scale", 0.5}}},
      {"Attention", {{f, {4, 5}}, {f, {6, 5}}, {f, {6, 2}}}, {}},
      {"CrossEntropy", {{f, {3, 4, 2}}, {i, {3, 2}}}, labels},
      {"CrossEntropyGrad", {{f, {3, 2}}, {f, {3, 4, 2}}, {i, {3, 2}}}, labels},
      {"BinaryCrossEntropyWithLogits", {{f, {3, 4}}, {f, {3, 4}}}, {}},
  };
}

HostTensor Random(const Type& type, std::mt19937* engine) {
  HostTensor t(type);
  std::uniform_real_distribution<double> uniform(0.1, 1.7);
  for (int64_t i = 0; i < t.size(); ++i) {
    if (IsFloat(type.dtype))
      t.Set(i, uniform(*engine));
    else
      t.SetInt(i, static_cast<int64_t>((*engine)() % 4));
  }
  return t;
}

struct Problem {
  Graph graph;  // outputs: loss, then the gradients by input name
  std::map<std::string, HostTensor> feeds;
  std::vector<std::string> wrt;
};

Problem Build(const Example& example) {
  std::mt19937 engine(1);
  Problem p;
  Builder b(&p.graph);
  std::vector<Val> inputs;
  std::vector<ValueId> wrt;
  for (const Type& type : example.inputs) {
    const std::string name = StrCat("x", inputs.size());
    inputs.push_back(b.Input(InputKind::kFeed, name, type));
    p.feeds.emplace(name, Random(type, &engine));
    if (!IsFloat(type.dtype)) continue;
    p.wrt.push_back(name);
    wrt.push_back(inputs.back().id());
  }
  Val loss;
  for (Val y : b.Ops(example.op, inputs, example.attrs)) {
    if (!IsFloat(y.dtype())) continue;
    const Val part = ReduceSum(y * b.Constant(Random(y.type(), &engine)), {}, false);
    loss = loss ? loss + part : part;
  }
  EXPECT_TRUE(b.status().ok()) << b.status();
  p.graph.AddOutput("loss", loss.id());
  const auto grads = Differentiate(&p.graph, loss.id(), wrt);
  EXPECT_TRUE(grads.ok()) << grads.status();
  for (size_t i = 0; grads.ok() && i < wrt.size(); ++i) p.graph.AddOutput(p.wrt[i], grads->at(wrt[i]));
  return p;
}

double Loss(const Problem& p, const std::string& name, int64_t element, double step) {
  auto feeds = p.feeds;
  HostTensor moved = feeds.at(name).Clone();
  moved.Set(element, moved.At(element) + step);
  feeds.insert_or_assign(name, moved);
  return Interpret(p.graph, feeds)->at(0).At(0);
}

void Check(const Example& example) {
  const Problem p = Build(example);
  const auto results = Interpret(p.graph, p.feeds);
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t i = 0; i < p.wrt.size(); ++i) {
    const HostTensor& grad = results->at(i + 1);
    for (int64_t e = 0; e < grad.size(); e += std::max<int64_t>(1, grad.size() / 12)) {
      const double h = 1e-5;
      const double expected = (Loss(p, p.wrt[i], e, h) - Loss(p, p.wrt[i], e, -h)) / (2 * h);
      EXPECT_NEAR(grad.At(e), expected, 1e-6 * std::max(1.0, std::abs(expected))) << p.wrt[i] << " at " << e;
    }
  }
}

TEST(Gradients, AgreeWithCentralDifferences) {
  for (const Example& example : Examples()) {
    SCOPED_TRACE(example.op);
    Check(example);
  }
}

}  // namespace
}  // namespace onnxtrain
