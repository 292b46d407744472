// Rewrites that spare a GPU launches: what they change, and that the graph computes the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/torch/multi_tensor/multi_tensor.h"
#include "backends/torch/products/wide_matmul.h"
#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "test_backends.h"
#include "tests/ops/run.h"

namespace onnxtrain::aten {
namespace {

using cases::Tensors;

int64_t CountNodes(const Graph& graph, std::string_view op) { return std::ranges::count(graph.nodes(), op, &Node::op); }

struct Lowered {
  Graph graph;
  std::vector<ValueId> values;
};

template <typename Rewrite>
Lowered Lower(const Graph& graph, Rewrite rewrite) {
  Lowered lowered;
  auto rewritten = rewrite(graph, &lowered.values);
  EXPECT_TRUE(rewritten.ok()) << rewritten.status();
  std::vector<ValueId> live;
  lowered.graph = Dce(*rewritten, {}, &live);
  for (ValueId& v : lowered.values) v = v == kNoValue ? v : live[v];
  EXPECT_TRUE(Verify(lowered.graph).ok()) << Verify(lowered.graph);
  return lowered;
}

void ExpectSame(const Graph& graph, const Graph& lowered, double tolerance) {
  Tensors feeds;
  for (const GraphInput& input : graph.inputs()) {
    cases::Rng rng(feeds.size() + 1);
    HostTensor tensor(graph.type(input.value));
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, rng.Uniform(-1, 1));
    feeds[input.name] = std::move(tensor);
  }
  const auto want = cases::RunOn(PlainBackend(), graph, feeds), got = cases::RunOn(PlainBackend(), lowered, feeds);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(got.ok()) << got.status();
  cases::ExpectNear(*got, *want, tolerance);
}

TEST(CastWeightsTogether, JoinsThoseThatAreCastOnce) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> half;
  for (int i = 0; i < 4; ++i) {
    const Val w = b.Input(InputKind::kParameter, StrCat("w", i), {DType::kFloat32, {3, i + 1}});
    half.push_back(Cast(w, i == 3 ? DType::kFloat16 : DType::kBFloat16));
    if (i == 1) graph.AddOutput("again", Cast(Cast(w, DType::kBFloat16), DType::kFloat32).id());
  }
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {3, 1}});
  half.push_back(Cast(x, DType::kBFloat16));
  for (size_t i = 0; i < half.size(); ++i) graph.AddOutput(StrCat("y", i), Cast(half[i], DType::kFloat32).id());
  const Lowered lowered = Lower(graph, CastWeightsTogether);
  const auto node = std::ranges::find(lowered.graph.nodes(), kCastTogether, &Node::op);
  ASSERT_NE(node, lowered.graph.nodes().end()) << Print(lowered.graph);
  EXPECT_EQ(node->inputs.size(), 2u) << Print(lowered.graph);  // w0 and w2
  EXPECT_EQ(lowered.values[half[0].id()], node->outputs[0]);
  EXPECT_EQ(lowered.values[half[2].id()], node->outputs[1]);
  EXPECT_EQ(CountNodes(lowered.graph, "Cast"), CountNodes(graph, "Cast") - 2);
  ExpectSame(graph, lowered.graph, 0);
}

// As in a pass without gradients: one weight at a time is held.
TEST(CastWeightsTogether, LeavesLargeOnesThatAreReadOnce) {
  Graph graph;
  Builder b(&graph);
  for (int i = 0; i < 4; ++i) {
    const Val w = b.Input(InputKind::kParameter, StrCat("w", i), {DType::kFloat32, {300, 300}});
    const Val turned = Transpose(Cast(w, DType::kBFloat16), {1, 0});
    graph.AddOutput(StrCat("y", i), Cast(turned, DType::kFloat32).id());
    if (i < 2) graph.AddOutput(StrCat("z", i), ReduceSum(Cast(turned, DType::kFloat32), {0}, false).id());
  }
  const Lowered lowered = Lower(graph, CastWeightsTogether);
  const auto node = std::ranges::find(lowered.graph.nodes(), kCastTogether, &Node::op);
  ASSERT_NE(node, lowered.graph.nodes().end()) << Print(lowered.graph);
  EXPECT_EQ(node->inputs.size(), 2u) << Print(lowered.graph);
  ExpectSame(graph, lowered.graph, 0);
}

// The type of the products is that of a GPU: the plain backend for the CPU promotes it.
TEST(WidenProducts, ReplacesCastsOfProducts) {
  Graph graph;
  Builder b(&graph);
  const auto feed = [&](const char* name, Shape shape) {
    return Cast(b.Input(InputKind::kFeed, name, {DType::kFloat32, std::move(shape)}), DType::kBFloat16);
  };
  const Val x = feed("x", {40, 6}), dy = feed("dy", {40, 5}), batched = feed("z", {2, 5, 6});
  const Val dw = MatMul(x, dy, true, false), read = MatMul(dy, dw, false, true), many = MatMul(batched, dw);
  const Val wide = Cast(MatMul(dy, x, true, false), DType::kFloat32);
  graph.AddOutput("wide", wide.id());
  graph.AddOutput("read", Cast(dw, DType::kFloat32).id());
  graph.AddOutput("many", Cast(many, DType::kFloat32).id());
  graph.AddOutput("alone", Cast(read, DType::kFloat32).id());
  ASSERT_TRUE(b.status().ok()) << b.status();
  const Lowered lowered = Lower(graph, WidenProducts);
  EXPECT_EQ(CountNodes(lowered.graph, kWideMatMul), 2) << Print(lowered.graph);
  EXPECT_EQ(CountNodes(lowered.graph, "MatMul"), 2) << "what others read in half precision, and of three axes";
  EXPECT_EQ(lowered.graph.producer(lowered.values[wide.id()])->op, kWideMatMul);
  ExpectSame(graph, lowered.graph, 1e-2);
}

}  // namespace
}  // namespace onnxtrain::aten
