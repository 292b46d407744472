// Gradients against central differences in float64, on the host. The loss weighs all outputs, so that gradients arrive
// at statistics and log-probabilities as well. Operators without a host evaluation are compared on the backends.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/interpret.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "tests/ops_nn/examples.h"

namespace onnxtrain {
namespace {

HostTensor Random(const Type& type, std::mt19937* engine) {
  HostTensor t(type);
  std::uniform_real_distribution<double> uniform(0.1, 1.7);
  for (int64_t i = 0; i < t.size(); ++i) {
    if (IsFloat(type.dtype)) t.Set(i, uniform(*engine));
    else t.SetInt(i, static_cast<int64_t>((*engine)() % 4));
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
  const std::set<std::string> evaluable = {"BatchNorm", "BatchNormInference", "LayerNorm", "RmsNorm", "RmsNormGrad", "Softmax", "LogSoftmax",
                                           "SoftmaxGrad", "LogSoftmaxGrad", "Attention", "CrossEntropy",
                                           "CrossEntropyGrad", "BinaryCrossEntropyWithLogits"};
  std::set<std::string> seen;
  for (const Example& example : Examples()) {
    if (!evaluable.contains(example.op) || example.inputs[0].dtype != DType::kFloat64) continue;
    SCOPED_TRACE(example.op);
    seen.insert(example.op);
    Check(example);
  }
  EXPECT_EQ(seen, evaluable);
}

}  // namespace
}  // namespace onnxtrain
