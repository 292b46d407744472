// Tests stages of the importer by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/base/status.h"
#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/scope.h"
#include "frontend/onnx/import/stages.h"
#include "tests/frontend/onnx/model_builder.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ParsedNode MakeNode(const std::string& op, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  return {.op_type = op, .source = op, .inputs = std::move(inputs), .outputs = std::move(outputs)};
}

// x → Relu → h → Exp → y, and a dead Log of h.
ParsedGraph MakeChain() {
  ParsedGraph graph;
  graph.nodes = {MakeNode("Relu", {"x"}, {"h"}), MakeNode("Log", {"h"}, {"dead"}), MakeNode("Exp", {"h"}, {"y"})};
  return graph;
}

TEST(LiveGraph, HoldsWhatTheOutputsDependOn) {
  const ParsedGraph graph = MakeChain();
  const LiveGraph live(graph, {"y"});
  EXPECT_TRUE(live.Contains(graph.nodes[0]));
  EXPECT_FALSE(live.Contains(graph.nodes[1]));
  EXPECT_TRUE(live.IsRead("x"));
  EXPECT_FALSE(live.IsRead("dead"));
  EXPECT_THAT(live.Users("h"), ElementsAre(&graph.nodes[2]));
  EXPECT_TRUE(live.Users("dead").empty());
  EXPECT_EQ(live.Producer("h"), &graph.nodes[0]);
  EXPECT_EQ(live.Producer("x"), nullptr);
}

TEST(LiveGraph, ListsUsersInOrder) {
  const ParsedGraph graph = MakeChain();
  const LiveGraph live(graph, {"y", "dead"});
  EXPECT_THAT(live.Users("h"), ElementsAre(&graph.nodes[1], &graph.nodes[2]));
}

// An input "x" of float32 with these dims.
ParsedGraph MakeInput(std::vector<int64_t> dims, std::vector<std::string> names) {
  ParsedGraph graph = MakeChain();
  graph.inputs = {{.name = "x",
                   .dtype = DType::kFloat32,
                   .has_shape = true,
                   .dims = std::move(dims),
                   .dim_names = std::move(names)}};
  return graph;
}

absl::StatusOr<Shape> ResolveInput(const ParsedGraph& graph, const ImportOptions& options) {
  return InputShapes(graph, LiveGraph(graph, {"y"}), options).Resolve(graph.inputs[0]);
}

TEST(InputShapes, ResolvesFreeDims) {
  const ParsedGraph graph = MakeInput({-1, 3, -1}, {"N", "", "T"});
  EXPECT_EQ(*ResolveInput(graph, {.dim_values = {{"T", 7}}, .batch = 5}), (Shape{5, 3, 7}));
  EXPECT_EQ(*ResolveInput(graph, {.input_shapes = {{"x", {2, 3, 4}}}}), (Shape{2, 3, 4}));
  EXPECT_EQ(*ResolveInput(graph, {.input_shapes = {{"x", {2, 3, 4}}}, .batch = 9}), (Shape{9, 3, 4}));
  EXPECT_THAT(Message(ResolveInput(graph, {}).status()), HasSubstr("`dim` T=N"));
  EXPECT_THAT(Message(ResolveInput(graph, {.input_shapes = {{"x", {2, 4, 4}}}}).status()), HasSubstr("cannot be"));
}

TEST(InputShapes, ReplacesAFixedBatch) {
  const ParsedGraph graph = MakeInput({1, 3}, {"", ""});
  const LiveGraph live(graph, {"y"});
  EXPECT_EQ(InputShapes(graph, live, {}).fixed_batch(), 0);
  const ImportOptions options{.batch = 8};
  const InputShapes shapes(graph, live, options);
  EXPECT_EQ(shapes.fixed_batch(), 1);
  EXPECT_EQ(*shapes.Resolve(graph.inputs[0]), (Shape{8, 3}));
}

TEST(FloatTypes, MapsFloatsAndTheirAttributes) {
  const FloatTypes types(DType::kFloat64, false);
  EXPECT_EQ(types.Map(DType::kFloat32), DType::kFloat64);
  EXPECT_EQ(types.Map(DType::kBFloat16), DType::kFloat64);
  EXPECT_EQ(types.Map(DType::kInt64), DType::kInt64);
  EXPECT_EQ(FloatTypes(DType::kFloat32, true).Map(DType::kFloat16), DType::kFloat16);
  EXPECT_EQ(FloatTypes(DType::kFloat32, false).Map(DType::kFloat64), DType::kFloat64);
  EXPECT_EQ(FloatTypes(DType::kFloat32, false, true).Map(DType::kFloat64), DType::kFloat32);
  EXPECT_EQ(FloatTypes(DType::kFloat32, true, true).Map(DType::kFloat64), DType::kFloat64);
  Attrs cast{{"to", int64_t{1}}}, random;
  types.MapAttrs(MakeNode("Cast", {"x"}, {"y"}), &cast);
  types.MapAttrs(MakeNode("RandomNormal", {}, {"y"}), &random);
  EXPECT_EQ(cast.Int("to"), 11);
  EXPECT_EQ(random.Int("dtype"), 11);
}

TEST(ErrorList, ShowsTheFirstErrorsAndCountsTheRest) {
  ErrorList errors;
  EXPECT_TRUE(errors.Summary().ok());
  for (int i = 0; i < 25; ++i) errors.Add(MakeNode("Relu", {}, {}), absl::UnimplementedError(StrCat("error ", i)));
  EXPECT_EQ(errors.Summary().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(errors.Summary()), HasSubstr("[Relu 'Relu'] error 19; and 5 more"));
}

TEST(SweepGraph, KeepsFeedsAndOrdersWeightsByFirstUse) {
  Graph graph;
  const Type type{DType::kFloat32, {2}};
  const ValueId unused = graph.AddInput(InputKind::kParameter, "unused", type);
  const ValueId late = graph.AddInput(InputKind::kParameter, "late", type);
  const ValueId early = graph.AddInput(InputKind::kParameter, "early", type);
  const ValueId x = graph.AddInput(InputKind::kFeed, "x", type);
  graph.AddInput(InputKind::kFeed, "ignored", type);
  const ValueId h = graph.AddNode("Add", {x, early}, {}, {type}).outputs[0];
  graph.AddNode("Mul", {h, unused}, {}, {type});
  graph.AddOutput("y", graph.AddNode("Add", {h, late}, {}, {type}).outputs[0]);
  const SweptGraph swept = SweepGraph(graph);
  std::vector<std::string> names;
  for (const GraphInput& input : swept.graph.inputs()) names.push_back(input.name);
  EXPECT_THAT(names, ElementsAre("x", "ignored", "early", "late"));
  EXPECT_EQ(swept.graph.nodes().size(), 2u);
  EXPECT_EQ(swept.values[unused], kNoValue);
  EXPECT_EQ(swept.graph.type(swept.values[late]), type);
}

}  // namespace
}  // namespace onnxtrain
