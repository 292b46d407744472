// Every operator case, with its gradients, written as standard ONNX and read again.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "frontend/onnx/import.h"
#include "frontend/onnx/write/export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/row.h"
#include "run.h"

namespace onnxtrain::cases {
namespace {

// Operators that ai.onnx lacks, forward or backward, in opset 18.
bool HasNoEmitter(const Case& c) {
  static const std::set<std::string, std::less<>> names = {
      "EncodeFloat", "GridSample",      "GridSampleInputGrad", "GridSampleGridGrad", "RoiAlign",      "RoiAlignGrad",
      "Det",         "Cofactor",        "ShiftLeft",           "ShiftRight",         "RandomUniform", "RandomNormal",
      "SumGradient", "RoundStochastic", "LeadingDirections"};
  const auto has = [&](const char* part) { return c.name.find(part) != std::string::npos; };
  return names.contains(c.op) || FindOp(c.op)->collective || (has("AveragePool") && has("dilated"));
}

// Whether other random numbers are drawn.
bool IsRandom(const Case& c) {
  return c.op == "Dropout" ||
         (c.name.find("Attention") != std::string::npos && c.name.find("dropout") != std::string::npos);
}

absl::StatusOr<ImportedModel> ReadAgain(const std::string& bytes, const Graph& original) {
  const auto model = OnnxModel::LoadBytes(std::as_bytes(std::span(bytes)), "emitted");
  if (!model.ok()) return model.status();
  ImportOptions options;
  options.conformance = true;
  for (const GraphInput& input : original.inputs()) options.input_shapes[input.name] = original.type(input.value).shape;
  return Import(**model, options);
}

class OnnxEmission : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Table, OnnxEmission, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(OnnxEmission, ComputesTheSame) {
  const Case& c = GetParam();
  if (c.name.ends_with("_hostile")) GTEST_SKIP() << "labels out of range, which ONNX leaves undefined";
  if (c.name.ends_with("_one_class_smooth")) GTEST_SKIP() << "0 but for rounding, which is relative to nothing";
  Graph graph = MakeGraph(c, false);
  if (!DifferentiableInputs(c).empty()) {
    ASSERT_TRUE(AddGradients(c, &graph).ok());
  }
  const auto bytes = SerializeGraph(graph, {});
  ASSERT_EQ(bytes.ok(), !HasNoEmitter(c)) << bytes.status();
  if (!bytes.ok()) GTEST_SKIP() << bytes.status();
  if (IsRandom(c)) GTEST_SKIP() << "draws other numbers";
  const auto again = ReadAgain(*bytes, graph);
  ASSERT_TRUE(again.ok()) << again.status();
  Backend& cpu = BackendNamed("cpu");
  Tensors feeds = MakeFeeds(c, graph, false);
  const auto want = RunOn(cpu, graph, feeds);
  for (const ImportedWeight& weight : again->weights) feeds.emplace(weight.name, weight.value);
  const auto got = RunOn(cpu, again->graph, feeds);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectNear(*got, *want, std::max(c.f32, 1e-5));
}

// Names of a model may look like those that are generated.
TEST(GraphWriter, KeepsNamesApart) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "t0", {DType::kFloat32, {2}});
  const Val y = b.Input(InputKind::kFeed, "_v3", {DType::kFloat32, {2}});
  graph.AddOutput("v2", b.Op("Clip", {x * y}, {{"min", -1.0}, {"max", 1.0}}).id());
  graph.AddOutput("v1_index", (x + y).id());
  ASSERT_TRUE(b.status().ok());
  const auto bytes = SerializeGraph(graph, {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto again = ReadAgain(*bytes, graph);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->graph.outputs().size(), 2u);
}

}  // namespace
}  // namespace onnxtrain::cases
