// GCC 12: false positive on array elements whose construction may throw.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// The logits of probabilities: their softmax, or sigmoid, is the output.
#include "optim/step/logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "frontend/ops/builder.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"

namespace onnxtrain {
namespace {

constexpr int64_t kBatch = 3;

struct Case {
  const char* name;
  Shape input;
  std::function<Val(Val)> model;
  std::string activation;  // "": there are no logits to expose
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"right from a softmax", {kBatch, 4}, [](Val x) { return Softmax(x, 1); }, ""},
      {"scores", {kBatch, 4}, [](Val x) { return x * 2.0; }, ""},
      {"reshaped",
       {kBatch, 4, 1, 1},
       [](Val x) {
         return Reshape(Softmax(x, 1), {kBatch, 4});
       },
       "Softmax"},
      {"squeezed sigmoid",
       {kBatch, 1, 1},
       [](Val x) {
         return Reshape(Sigmoid(x), {kBatch, 1});
       },
       "Sigmoid"},
      {"transposed",
       {kBatch, 4, 5},
       [](Val x) {
         return Transpose(Softmax(x, 1), {0, 2, 1});
       },
       "Softmax"},
      {"classes that a reshape mixes",
       {kBatch, 2, 4},
       [](Val x) {
         return Reshape(Softmax(x, 2), {kBatch, 8});
       },
       ""},
      {"average", {kBatch, 4}, [](Val x) { return (Softmax(x, 1) + Softmax(x * 2.0, 1)) * 0.5; }, "Softmax"},
      {"half an average", {kBatch, 4}, [](Val x) { return (Softmax(x, 1) + Softmax(x * 2.0, 1)) * 0.25; }, ""},
      {"clipped",
       {kBatch, 4},
       [](Val x) {
         return x.b().Op("Clip", {Softmax(x, 1)}, {{"min", 1e-7}, {"max", 1.0}});
       },
       "Softmax"},
      {"exponential of a log-softmax",
       {kBatch, 4},
       [](Val x) {
         return Exp(x.b().Op("LogSoftmax", {x}, {{"axis", int64_t{1}}}));
       },
       "Softmax"},
  };
  return cases;
}

// With one sigmoid for both.
Val Complements(Val x) {
  const Val p = Sigmoid(x);
  return Concat({1.0 - p, p}, 1);
}
Val Normalized(Val x) {
  const Val p = Sigmoid(x);
  return p / ReduceSum(p, {1});
}

ImportedModel MakeModel(const Shape& input, const std::function<Val(Val)>& y) {
  ImportedModel model;
  Builder b(&model.graph);
  model.graph.AddOutput("y", y(b.Input(InputKind::kFeed, "x", {DType::kFloat32, input}) * 1.0).id());
  model.outputs = {"y"};
  EXPECT_TRUE(b.status().ok()) << b.status();
  return model;
}

// Largest difference between the output and the activation of its logits.
void ExpectLogits(const char* name, ImportedModel model, const std::string& activation) {
  const Logits& logits = model.logits.at("y");
  EXPECT_EQ(logits.activation, activation) << name;
  Builder b(&model.graph);
  const Val z = b.Wrap(model.graph.FindOutput(logits.output)->value);
  model.graph.AddOutput("again", (activation == "Softmax" ? Softmax(z, z.dim(1) == 5 ? 2 : 1) : Sigmoid(z)).id());
  HostTensor x(model.graph.type(model.graph.inputs()[0].value));
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, std::sin(3.0 * static_cast<double>(i)));
  const auto values = Interpret(model.graph, {{"x", x}});
  ASSERT_TRUE(values.ok()) << values.status();
  for (int64_t i = 0; i < values->front().size(); ++i)
    EXPECT_NEAR(values->front().At(i), values->back().At(i), 1e-6) << name;
}

TEST(Logits, AreFoundBehindProbabilities) {
  for (const Case& c : Cases()) {
    ImportedModel model = MakeModel(c.input, c.model);
    ExposeLogits(&model);
    EXPECT_EQ(model.logits.contains("y"), !c.activation.empty()) << c.name;
    if (model.logits.contains("y") && !c.activation.empty()) ExpectLogits(c.name, std::move(model), c.activation);
  }
}

TEST(Logits, OfOneSigmoidAndOfScoresDividedByTheirSum) {
  ImportedModel binary = MakeModel({kBatch, 1}, Complements), normalized = MakeModel({kBatch, 4}, Normalized);
  ExposeLogits(&binary);
  ExposeLogits(&normalized);
  ASSERT_TRUE(binary.logits.contains("y"));
  ASSERT_TRUE(normalized.logits.contains("y"));
  ExpectLogits("complements", std::move(binary), "Softmax");
  ExpectLogits("divided by the sum", std::move(normalized), "Softmax");
}

}  // namespace
}  // namespace onnxtrain
