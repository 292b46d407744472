// Graphs as models have them, fused, by a CPU build of the generated source, against the same graphs unfused.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/torch/fuse/fuse_graph.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/random.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/eliminate.h"
#include "test_backends.h"
#include "tests/ops/run.h"

namespace onnxtrain::aten {
namespace {

using cases::Tensors;

HostTensor MakeRandom(const Type& type, uint64_t seed) {
  cases::Rng rng(seed);
  HostTensor tensor(type);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, rng.Uniform(-1, 1));
  return tensor;
}

HostTensor MakeKey(uint32_t piece) {
  return HostTensor::FromInts({DType::kUInt32, {4}}, std::vector<int64_t>{7, 3, 1, piece});
}

Graph Fuse(const Graph& graph) {
  auto fused = FuseGraph(graph);
  EXPECT_TRUE(fused.ok()) << fused.status();
  const Graph live = Dce(*fused);
  const absl::Status valid = Verify(live);
  EXPECT_TRUE(valid.ok()) << valid;
  return live;
}

int CountNodes(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::ranges::count(graph.nodes(), op, &Node::op));
}

// Runs a graph on random inputs without fusion, and one that is to be equal with it.
void ExpectSame(const Graph& graph, const Graph& other, double tolerance, uint32_t piece) {
  Tensors feeds;
  for (const GraphInput& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    feeds[input.name] = type.dtype == DType::kUInt32 ? MakeKey(piece) : MakeRandom(type, feeds.size() + 1);
  }
  const auto want = cases::RunOn(PlainBackend(), graph, feeds), got = cases::RunOn(FusingBackend(), other, feeds);
  EXPECT_TRUE(want.ok()) << want.status();
  EXPECT_TRUE(got.ok()) << got.status();
  if (want.ok() && got.ok()) cases::ExpectNear(*got, *want, tolerance);
}

// The same, with fusion. Returns the fused graph.
Graph CheckFused(const Graph& graph, double tolerance, uint32_t piece = 0) {
  ExpectSame(graph, graph, tolerance, piece);
  const auto legal = PlainBackend().Legalize(graph);
  EXPECT_TRUE(legal.ok()) << legal.status();
  return Fuse(*legal);
}

// A graph under construction.
struct Maker {
  Graph graph;
  Builder b{&graph};

  Val Feed(const std::string& name, Shape shape, DType dtype = DType::kFloat32) {
    return b.Input(InputKind::kFeed, name, {dtype, std::move(shape)});
  }
  Val Param(const std::string& name, Shape shape) {
    return b.Input(InputKind::kParameter, name, {DType::kFloat32, std::move(shape)});
  }
  Val Key() { return b.Input(InputKind::kFeed, "key", {DType::kUInt32, {4}}); }
  Val Dropout(Val x, Val key, int64_t stream) {
    return b.Op("Dropout", {x, key}, {{"ratio", 0.1}, {"stream", stream}});
  }
  Val LayerNorm(Val x, Val scale, Val bias) {
    return b.Op("LayerNorm", {x, scale, bias}, {{"axis", int64_t{x.rank() - 1}}, {"epsilon", 1e-5}});
  }
  Val Out(const std::string& name, Val v) {
    graph.AddOutput(name, v.id());
    return v;
  }
  const Graph& Done() {
    EXPECT_TRUE(b.status().ok()) << b.status();
    return graph;
  }
  // Adds the gradients of Σ dy·y by all float inputs.
  void AddGradients(Val y) {
    std::vector<ValueId> wrt;
    const std::vector<GraphInput> inputs = graph.inputs();
    for (const GraphInput& input : inputs) {
      if (IsFloat(graph.type(input.value).dtype)) wrt.push_back(input.value);
    }
    const Val dy = Feed("dy", y.shape(), y.dtype());
    const Seed seeds[] = {{y.id(), dy.id()}};
    const auto gradients = Differentiate(&graph, seeds, wrt);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    for (const GraphInput& input : inputs) {
      if (const auto it = gradients->find(input.value); it != gradients->end())
        graph.AddOutput("d_" + input.name, it->second);
    }
  }
};

// Odd sizes: nothing is a multiple of a vector or a warp.
TEST(FuseGraph, BiasAndGelu) {
  for (const Shape& shape : {Shape{5, 7, 13}, Shape{64, 96}, Shape{1, 1003}, Shape{300, 40}}) {
    Maker m;
    const Val x = m.Feed("x", shape), bias = m.Param("b", {shape.back()});
    const Val y = m.Out("y", m.b.Op("Gelu", {x + bias}));
    m.AddGradients(y);
    const Graph fused = CheckFused(m.Done(), 1e-5);
    EXPECT_EQ(CountNodes(fused, kFusedOp), 1) << Print(fused);
    EXPECT_EQ(CountNodes(fused, "Gelu") + CountNodes(fused, "GeluGrad"), 0);
  }
}

// The bias gradient is a sum of columns in the kernel of the GELU's gradient.
TEST(FuseGraph, SumsColumnsInTheProducersKernel) {
  Maker m;
  const Val x = m.Feed("x", {1000, 64}), dy = m.Feed("dy", {1000, 64});
  const Val dx = m.Out("dx", m.b.Op("GeluGrad", {dy, x}));
  m.Out("db", ReduceSum(dx, {0}, false));
  const Graph fused = CheckFused(m.Done(), 1e-5);
  EXPECT_EQ(fused.nodes().size(), 1u) << Print(fused);
}

// A transformer's block end: residual + dropout, then normalization, forward and backward.
TEST(FuseGraph, DropoutResidualAndLayerNorm) {
  for (const uint32_t piece : {0u, MakePiece(3, 8), MakePiece(1, 3)}) {
    for (const Shape& shape : {Shape{4, 9, 24}, Shape{33, 37}, Shape{40, 768}, Shape{17, 2051}}) {
      Maker m;
      const Val x = m.Feed("x", shape), residual = m.Feed("r", shape), key = m.Key();
      const Val scale = m.Param("scale", {shape.back()}), bias = m.Param("bias", {shape.back()});
      const Val y = m.Out("y", m.LayerNorm(m.Dropout(x, key, 5) + residual, scale, bias));
      m.AddGradients(y);
      const Graph fused = CheckFused(m.Done(), 2e-5, piece);
      EXPECT_EQ(CountNodes(fused, kFusedOp), 1) << Print(fused);
      EXPECT_EQ(CountNodes(fused, "Dropout") + CountNodes(fused, "LayerNorm") + CountNodes(fused, "LayerNormGrad"), 0);
    }
  }
}

TEST(FuseGraph, RmsNormOfHalves) {
  Maker m;
  const Val x = m.Feed("x", {48, 80}), scale = m.Param("scale", {80});
  const Val low = Cast(x, DType::kBFloat16) * 2.0;
  const Val y = m.b.Ops("RmsNorm", {low, Cast(scale, DType::kBFloat16)}, {{"axis", int64_t{1}}})[0];
  m.AddGradients(m.Out("y", y));
  const Graph fused = CheckFused(m.Done(), 1.0 / 100);
  EXPECT_EQ(CountNodes(fused, "RmsNorm") + CountNodes(fused, "ReduceMean"), 0) << Print(fused);
}

// Half precision as a GPU computes it, without casts around every operator: the kernel rounds as if they were there.
TEST(FuseGraph, ComputesInHalfPrecision) {
  for (const DType half : {DType::kBFloat16, DType::kFloat16}) {
    Maker m;
    const Val x = m.Feed("x", {40, 72}, half), bias = m.Feed("b", {72}, half), key = m.Key();
    const Val h = m.Out("h", m.b.Op("Gelu", {x * 2.0 + bias}));
    const Val y = m.Out("y", m.LayerNorm(m.Dropout(h, key, 3) + x, bias, bias));
    m.Out("db", ReduceSum(y, {0}, false));
    m.Out("wide", Cast(y, DType::kFloat32) * 3.0);
    const Graph fused = Fuse(m.Done());
    EXPECT_EQ(fused.nodes().size(), 1u) << Print(fused);
    ExpectSame(m.graph, fused, half == DType::kBFloat16 ? 1.0 / 64 : 1.0 / 512, 0);
  }
}

// Scores with a mask that is broadcast over heads and queries.
TEST(FuseGraph, MaskedSoftmaxWithDropout) {
  for (const int64_t keys : {int64_t{64}, int64_t{19}, int64_t{1200}}) {
    Maker m;
    const Val scores = m.Feed("scores", {2, 3, 11, keys}), mask = m.Feed("mask", {2, 1, 1, keys}), key = m.Key();
    const Val p = m.b.Op("Softmax", {scores * 0.125 + mask}, {{"axis", int64_t{3}}});
    m.AddGradients(m.Out("y", m.Dropout(p, key, 2)));
    const Graph fused = CheckFused(m.Done(), 1e-5);
    EXPECT_EQ(CountNodes(fused, "Softmax") + CountNodes(fused, "SoftmaxGrad"), 0) << Print(fused);
  }
}

// Rows too long for registers: every pass computes its values again.
TEST(FuseGraph, LongRows) {
  Maker m;
  const Val x = m.Feed("x", {3, 40009}), key = m.Key();
  const Val logits = m.Dropout(Tanh(x), key, 1) * 3.0;
  m.Out("y", m.b.Op("LogSoftmax", {logits}, {{"axis", int64_t{1}}}));
  m.Out("z", m.b.Op("Softmax", {logits}, {{"axis", int64_t{1}}}));
  const Graph fused = CheckFused(m.Done(), 1e-5);
  EXPECT_EQ(CountNodes(fused, "Softmax"), 0);
}

// Statistics of rows that the graph reads itself.
TEST(FuseGraph, ReadsReductionsOfRows) {
  Maker m;
  const Val x = m.Feed("x", {60, 50});
  const Val mean = ReduceMean(x, {1}), centered = x - mean;
  const Val variance = m.Out("variance", ReduceMean(centered * centered, {1}));
  m.Out("y", centered * Rsqrt(variance + 1e-5));
  m.Out("largest", m.b.Op("ReduceMax", {centered}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}}));
  const Graph fused = CheckFused(m.Done(), 1e-5);
  EXPECT_EQ(fused.nodes().size(), 1u) << Print(fused);
}

// Operands that are broadcast along the first, the middle and several axes.
TEST(FuseGraph, Broadcasts) {
  Maker m;
  const Val x = m.Feed("x", {6, 10, 4, 8}), a = m.Feed("a", {10, 1, 8}), b = m.Feed("b", {6, 1, 4, 1}),
            c = m.Feed("c", {}), d = m.Feed("d", {1, 10, 4, 1});
  m.Out("y", Tanh(x * a + b) / (Exp(c) + d * d));
  const Graph fused = CheckFused(m.Done(), 1e-5);
  EXPECT_EQ(CountNodes(fused, kFusedOp), 2) << Print(fused);  // one over the smaller tensors alone
}

// Groups over a Reshape, as between a product and a normalization.
TEST(FuseGraph, FusesOverViews) {
  Maker m;
  const Val x = m.Feed("x", {4 * 9, 32}), bias = m.Param("b", {32}), r = m.Feed("r", {4, 9, 32});
  const Val scale = m.Param("scale", {32}), shift = m.Param("shift", {32});
  m.Out("y", m.LayerNorm(Reshape(x + bias, {4, 9, 32}) + r, scale, shift));
  const Graph fused = CheckFused(m.Done(), 1e-5);
  EXPECT_EQ(fused.nodes().size(), 1u) << Print(fused);
}

// An update rule in place: one kernel over flat memory, and one for its scalars.
// A kernel's body repeats constants, but not what is computed from them.
TEST(FuseGraph, ViewsOfConstantsAreOperands) {
  Maker m;
  const Val x = m.Feed("x", {40, 64});
  const Val half = Reshape(m.b.Constant(HostTensor::Filled({DType::kFloat32, {64}}, 0.5)), {1, 64});
  m.graph.AddOutput("y", Tanh(x * half + 1.0).id());
  EXPECT_EQ(CountNodes(CheckFused(m.graph, 1e-6), kFusedOp), 1);
}

TEST(FuseGraph, AdamW) {
  for (const int64_t n : {int64_t{4096}, int64_t{1001}}) {
    Maker m;
    const Val p = m.Param("p", {n}), g = m.Feed("g", {n});
    const Val m1 = m.b.Input(InputKind::kState, "m", {DType::kFloat32, {n}});
    const Val v = m.b.Input(InputKind::kState, "v", {DType::kFloat32, {n}});
    const Val lr = m.Feed("lr", {}), step = m.Feed("step", {});
    const Val m2 = m1 * 0.9 + g * 0.1, v2 = v * 0.999 + (g * g) * 0.001;
    const Val t = step + 2.0, correction = 1.0 - Exp(t * -0.1);
    const Val update =
        (lr / correction) * (m2 / (Sqrt(Binary("Max", v2, m.b.Scalar(DType::kFloat32, 0))) / Sqrt(t) + 1e-3));
    m.graph.AddOutput("p'", (p * (1.0 - lr * 0.01) - update).id(), p.id());
    m.graph.AddOutput("m'", m2.id(), m1.id());
    m.graph.AddOutput("v'", v2.id(), v.id());
    const Graph fused = CheckFused(m.Done(), 1e-5);
    EXPECT_EQ(fused.nodes().size(), 2u) << Print(fused);
    EXPECT_EQ(fused.outputs()[0].into, fused.inputs()[0].value);
  }
}

// What only a later node completes is not read in the kernel: no cycle.
TEST(FuseGraph, LeavesCyclesApart) {
  Maker m;
  const Val x = m.Feed("x", {32, 32}), w = m.Param("w", {32, 32});
  const Val h = Tanh(x) * 2.0;
  m.Out("y", h + Exp(MatMul(h, w)) * 0.5);
  const Graph fused = CheckFused(m.Done(), 1e-5);
  EXPECT_EQ(CountNodes(fused, kFusedOp), 2) << Print(fused);
}

TEST(FuseGraph, KeepsWhatItCannotCompute) {
  Maker m;
  const Val x = m.Feed("x", {8, 6, 4});
  m.Out("middle", ReduceSum(Exp(x), {1}));
  m.Out("cumulative", m.b.Op("CumSum", {Exp(x)}, {{"axis", int64_t{1}}}));
  const Val wide = Cast(x, DType::kFloat64);
  m.Out("wide", Cast(Exp(wide) * wide, DType::kFloat32));
  const Graph fused = CheckFused(m.Done(), 1e-5);
  EXPECT_EQ(CountNodes(fused, "ReduceSum"), 1);
  EXPECT_EQ(CountNodes(fused, "CumSum"), 1);
}

}  // namespace
}  // namespace onnxtrain::aten
