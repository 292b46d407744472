// Activations stored channels last: where they are transposed, and that they are computed alike. libtorch's kernels for
// the CPU take the same strides as those for a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/layout/channels_last.h"
#include "backends/torch/layout/expand_batch_norm.h"
#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/match.h"
#include "test_backends.h"
#include "tests/ops/run.h"

namespace onnxtrain::aten {
namespace {

using Ints = std::vector<int64_t>;

int64_t CountNodes(const Graph& graph, std::string_view op) { return std::ranges::count(graph.nodes(), op, &Node::op); }

// The attributes of a window of `kernel` elements along every axis.
Attrs MakeWindow(int rank, int64_t stride, int64_t begin, int64_t end, int64_t dilation = 1) {
  Ints pads(rank, begin);
  pads.resize(2 * rank, end);
  return {{"strides", Ints(rank, stride)}, {"pads", pads}, {"dilations", Ints(rank, dilation)}};
}

class Network {
 public:
  explicit Network(DType dtype = DType::kFloat32) : dtype_(dtype), b_(&graph_) {}

  Builder& b() { return b_; }
  Graph& graph() { return graph_; }
  Val Feed(const std::string& name, Shape shape) {
    return b_.Input(InputKind::kFeed, name, {dtype_, std::move(shape)});
  }
  Val Weight(const std::string& name, Shape shape) {
    const Val w = b_.Input(InputKind::kParameter, name, {dtype_, std::move(shape)});
    weights_.push_back(w.id());
    return w;
  }
  Val Conv(Val x, const std::string& name, int64_t channels, int64_t kernel, int64_t stride = 1) {
    const int rank = x.rank() - 2;
    Shape shape = {channels, x.shape()[1]};
    shape.resize(x.rank(), kernel);
    return b_.Op("Conv", {x, Weight(name, shape)}, MakeWindow(rank, stride, kernel / 2, kernel / 2));
  }
  Val Norm(Val x, const std::string& name) {
    const int64_t channels = x.shape()[1];
    return b_.Ops("BatchNorm", {x, Weight(name + ".s", {channels}), Weight(name + ".b", {channels})},
                  {{"epsilon", 1e-3}})[0];
  }
  Val Pool(const char* op, Val x, const Attrs& window, int64_t kernel) {
    Attrs attrs = window;
    attrs.Set("kernel_shape", Ints(x.rank() - 2, kernel));
    return b_.Ops(op, {x}, attrs)[0];
  }

  // The loss Σ y² with the gradients of all weights.
  Graph Finish(Val y) {
    const Val loss = ReduceSum(y * y, {}, false);
    graph_.AddOutput("loss", loss.id());
    const auto gradients = Differentiate(&graph_, loss.id(), weights_, b_.Scalar(dtype_, 1).id());
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    for (ValueId w : weights_) graph_.AddOutput("d" + graph_.inputs()[graph_.value(w).index].name, gradients->at(w));
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    return Dce(graph_);
  }

 private:
  const DType dtype_;
  Graph graph_;
  Builder b_;
  std::vector<ValueId> weights_;
};

Graph Assign(const Graph& graph, bool tf32 = true) {
  auto assigned = AssignChannelsLast(graph, tf32);
  EXPECT_TRUE(assigned.ok()) << assigned.status();
  const Graph live = Dce(*assigned);
  const absl::Status valid = Verify(live);
  EXPECT_TRUE(valid.ok()) << valid;
  return live;
}

// Transposes of what is no weight.
int64_t CountConversions(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& n) {
    const bool of_weight = n.op == "Transpose" && graph.IsInput(n.inputs[0]) &&
                           graph.inputs()[graph.value(n.inputs[0]).index].kind == InputKind::kParameter;
    return n.op == "Transpose" && !of_weight;
  });
}

cases::Tensors MakeInputs(const Graph& graph) {
  cases::Tensors inputs;
  double step = 0.31;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor tensor(graph.type(input.value));
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, std::sin(step * static_cast<double>(i + 1)));
    inputs.emplace(input.name, std::move(tensor));
    step += 0.17;
  }
  return inputs;
}

void ExpectSameResults(const Graph& graph, const Graph& assigned) {
  const cases::Tensors inputs = MakeInputs(graph);
  auto want = cases::RunOn(PlainBackend(), graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  for (Backend* backend : {&PlainBackend(), &FusingBackend()}) {
    auto got = cases::RunOn(*backend, assigned, inputs);
    ASSERT_TRUE(got.ok()) << got.status() << Print(assigned);
    cases::ExpectNear(*got, *want, 2e-5);
  }
}

// A stem, a residual block with a second branch, and a head.
Graph MakeResidualNetwork(DType dtype = DType::kFloat32, int64_t width = 4) {
  Network n(dtype);
  const Val x = n.Feed("x", {2, 3, 12, 10});
  const Val stem =
      n.Pool("MaxPool", n.b().Op("Relu", {n.Norm(n.Conv(x, "stem", 2 * width, 3), "n0")}), MakeWindow(2, 2, 1, 1), 3);
  const Val inner = n.b().Op("Relu", {n.Norm(n.Conv(stem, "c1", 3 * width, 3, 2), "n1")});
  const Val down = n.Norm(n.Conv(stem, "down", 3 * width, 1, 2), "n3");
  const Val block = n.b().Op("Relu", {n.Norm(n.Conv(inner, "c2", 3 * width, 3), "n2") + down});
  const Val head = MatMul(ReduceMean(block, {2, 3}, false), n.Weight("head", {3 * width, 5}));
  return n.Finish(head);
}

TEST(ChannelsLast, NothingIsConvertedBetweenConvolutions) {
  const Graph graph = MakeResidualNetwork();
  const Graph assigned = Assign(graph);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcConv"), 4);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcConvWeightGrad"), 4);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcConvTranspose"), 3);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcBatchNormGrad"), 4);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcMaxPoolGrad"), 1);
  EXPECT_EQ(CountNodes(assigned, "Conv") + CountNodes(assigned, "BatchNorm") + CountNodes(assigned, "MaxPool"), 0);
  EXPECT_EQ(CountConversions(assigned), 1) << "of the images alone\n" << Print(assigned);
  ExpectSameResults(graph, assigned);
}

Graph Expand(const Graph& graph) {
  auto expanded = ExpandBatchNorms(graph);
  EXPECT_TRUE(expanded.ok()) << expanded.status();
  const Graph live = Dce(*expanded);
  EXPECT_TRUE(Verify(live).ok()) << Verify(live);
  return live;
}

// The fusing backend expands them by itself.
TEST(ChannelsLast, BatchNormsOfManyChannelsAreGenerated) {
  const Graph graph = MakeResidualNetwork(DType::kFloat32, 20), assigned = Assign(graph), expanded = Expand(assigned);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcBatchNorm") + CountNodes(assigned, "torch.NhwcBatchNormGrad"), 8);
  EXPECT_EQ(CountNodes(expanded, "torch.NhwcBatchNorm") + CountNodes(expanded, "torch.NhwcBatchNormGrad"), 0);
  ExpectSameResults(graph, assigned);
  const Graph narrow = Assign(MakeResidualNetwork());
  EXPECT_EQ(Print(Expand(narrow)), Print(narrow)) << "few columns are not summed by kernels";
}

// Every kernel reads and writes the activations in half precision.
TEST(ChannelsLast, BatchNormsOfHalvesStoreNoFloats) {
  RegisterChannelsLastOps();
  Graph graph;
  Builder b(&graph);
  const Shape shape = {4, 6, 5, 72};
  const auto feed = [&](const char* name, Shape s, DType dtype) {
    return b.Input(InputKind::kFeed, name, {dtype, std::move(s)});
  };
  const Val x = feed("x", shape, DType::kBFloat16), dy = feed("dy", shape, DType::kBFloat16);
  const Val scale = feed("scale", {72}, DType::kFloat32), bias = feed("bias", {72}, DType::kFloat32);
  const Val wide = Cast(x, DType::kFloat32);
  const std::vector<Val> y = b.Ops("torch.NhwcBatchNorm", {wide, scale, bias}, {{"epsilon", 1e-3}});
  const std::vector<Val> gradients =
      b.Ops("torch.NhwcBatchNormGrad", {Cast(dy, DType::kFloat32), wide, scale, y[1], y[2]}, {});
  graph.AddOutput("y", Cast(b.Op("Relu", {y[0]}), DType::kBFloat16).id());
  graph.AddOutput("dx", Cast(gradients[0], DType::kBFloat16).id());
  graph.AddOutput("dscale", gradients[1].id());
  graph.AddOutput("dbias", gradients[2].id());
  ASSERT_TRUE(b.status().ok()) << b.status();
  auto fused = FuseGraph(Expand(graph));
  ASSERT_TRUE(fused.ok()) << fused.status();
  const Graph live = Dce(*fused);
  for (const Node& node : live.nodes()) {
    EXPECT_TRUE(node.op == kFusedOp || node.op == "Reshape" || node.op == "Constant") << Print(live);
    for (ValueId v : node.outputs) {
      EXPECT_TRUE(live.type(v).elements() < NumElements(shape) || live.type(v).dtype == DType::kBFloat16)
          << Print(live);
    }
  }
  const auto want = cases::RunOn(PlainBackend(), graph, MakeInputs(graph));
  const auto got = cases::RunOn(FusingBackend(), graph, MakeInputs(graph));
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(got.ok()) << got.status();
  cases::ExpectNear(*got, *want, 1e-2);
}

TEST(ChannelsLast, KernelsOfTensorCoresWantIt) {
  const Graph single = MakeResidualNetwork();
  EXPECT_EQ(CountNodes(Assign(single, /*tf32=*/false), "torch.NhwcConv"), 0);
  EXPECT_EQ(CountNodes(Assign(MakeResidualNetwork(DType::kFloat64)), "torch.NhwcConv"), 0);
  EXPECT_EQ(CountNodes(Assign(MakeResidualNetwork(DType::kBFloat16), /*tf32=*/false), "torch.NhwcConv"), 4);
}

// Lowering for a GPU needs none.
TEST(ChannelsLast, LoweringForAGpuAssignsIt) {
  const c10::Device gpu("cuda:0");
  const auto count = [&](DType dtype, bool tf32) {
    auto legal = MakeTorchBackend(gpu, nullptr, tf32)->Legalize(MakeResidualNetwork(dtype));
    EXPECT_TRUE(legal.ok()) << legal.status();
    return CountNodes(*legal, "torch.NhwcConv");
  };
  EXPECT_EQ(count(DType::kBFloat16, false), 4);
  EXPECT_EQ(count(DType::kFloat32, false), 0);
  EXPECT_EQ(count(DType::kFloat32, true), 4);
}

// Groups, depth, dilation, pads that differ, windows of which ATen has no kernel, and unused positions.
TEST(ChannelsLast, EveryKindOfWindow) {
  Network n;
  const Val x = n.Conv(n.Feed("x", {2, 4, 13, 11}), "c0", 8, 3);
  const Val grouped = n.b().Op("Conv", {x, n.Weight("grouped", {12, 2, 3, 3})}, [] {
    Attrs attrs = MakeWindow(2, 1, 0, 2);
    attrs.Set("group", int64_t{4});
    return attrs;
  }());
  const Val each = n.b().Op("Conv", {grouped, n.Weight("each", {12, 1, 3, 3}), n.Weight("bias", {12})}, [] {
    Attrs attrs = MakeWindow(2, 2, 2, 2, 2);
    attrs.Set("group", int64_t{12});
    return attrs;
  }());
  Attrs average = MakeWindow(2, 1, 0, 1), dilated = MakeWindow(2, 1, 1, 1, 2);
  const Val pooled = n.Pool("AveragePool", each, average, 2) + n.Pool("MaxPool", each, average, 2);
  const Val y = n.Conv(n.Pool("AveragePool", pooled, dilated, 2), "last", 3, 1);
  const Graph graph = n.Finish(y);
  const Graph assigned = Assign(graph);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcAveragePool"), 2) << Print(assigned);
  EXPECT_EQ(CountConversions(assigned), 1) << Print(assigned);
  ExpectSameResults(graph, assigned);
}

TEST(ChannelsLast, Volumes) {
  Network n;
  const Val h = n.b().Op("Relu", {n.Norm(n.Conv(n.Feed("x", {2, 3, 5, 6, 4}), "c0", 4, 3), "n0")});
  const Graph graph = n.Finish(n.Conv(n.Pool("MaxPool", h, MakeWindow(3, 2, 0, 0), 2), "c1", 6, 1));
  const Graph assigned = Assign(graph);
  EXPECT_EQ(CountNodes(assigned, "torch.NhwcConv"), 2);
  ExpectSameResults(graph, assigned);
}

// Operators that compute in any order follow, with their axes; constants that are broadcast, too.
TEST(ChannelsLast, OperatorsOfAnyOrderFollow) {
  Network n;
  const Val a = n.Conv(n.Feed("x", {2, 3, 6, 7}), "c0", 4, 3), c = n.Conv(a, "c1", 4, 3);
  const Val joined = n.b().Op("Concat", {a, c}, {{"axis", int64_t{1}}});
  const Val scaled = joined * n.Weight("channel", {8, 1, 1}) + n.Weight("pixel", {6, 7}) * 0.5;
  const Val padded = n.b().Op("Pad", {scaled}, {{"pads", Ints{0, 0, 1, 2, 0, 0, 2, 1}}});
  const Val y = n.Conv(padded, "c2", 5, 3);
  n.graph().AddOutput("joined", joined.id());
  const Graph graph = n.Finish(ReduceSum(y, {1}, true) + ReduceMean(y, {1, 3}, true));
  const Graph assigned = Assign(graph);
  EXPECT_EQ(CountConversions(assigned), 2) << "x and the output 'joined'\n" << Print(assigned);
  ExpectSameResults(graph, assigned);
}

// A model of channels last, as exporters of TensorFlow write it, needs no transposes at all.
TEST(ChannelsLast, TransposesBetweenTheLayoutsVanish) {
  Network n;
  const Val x = Transpose(n.Feed("x", {2, 9, 8, 3}), {0, 3, 1, 2});
  const Val y = Transpose(n.Conv(n.b().Op("Relu", {n.Conv(x, "c0", 4, 3)}), "c1", 5, 3), {0, 2, 3, 1});
  const Graph graph = n.Finish(Tanh(y));
  const Graph assigned = Assign(graph);
  EXPECT_EQ(CountConversions(assigned), 0) << Print(assigned);
  ExpectSameResults(graph, assigned);
}

}  // namespace
}  // namespace onnxtrain::aten
