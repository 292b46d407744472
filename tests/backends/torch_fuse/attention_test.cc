// Attention by libtorch's fused kernels: the graph with stand-in kernels, the race, and, on libtorch 2.x, the kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "backends/torch/attention/attention_op.h"
#include "backends/torch/attention/fuse_attention.h"
#include "backends/torch/tensor.h"
#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/eliminate.h"
#include "test_backends.h"
#include "tests/ops/run.h"

namespace onnxtrain::aten {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Shape kHeads = {2, 3, 5, 4}, kSplit = {2, 5, 3, 4};

enum class Mask : uint8_t { kNone, kCausal, kFed, kHidesAll };

// −∞, or a large number, where the key comes after the query.
HostTensor MakeCausal(int64_t rows, double hidden) {
  HostTensor mask({DType::kFloat32, {1, 1, rows, rows}});
  for (int64_t i = 0; i < mask.size(); ++i) mask.Set(i, i % rows > i / rows ? hidden : 0);
  return mask;
}

// The first sample sees no key.
HostTensor MakeHidesAll() {
  HostTensor mask({DType::kFloat32, {2, 1, 1, kHeads[2]}});
  for (int64_t i = 0; i < kHeads[2]; ++i) mask.Set(i, -kInfinity);
  return mask;
}

Val MakeMask(Builder& b, Mask mask) {
  switch (mask) {
    case Mask::kNone:
      return {};
    case Mask::kCausal:
      return b.Constant(MakeCausal(kHeads[2], -kInfinity));
    case Mask::kFed:
      return b.Input(InputKind::kFeed, "mask", {DType::kFloat32, {2, 1, 1, kHeads[2]}});
    case Mask::kHidesAll:
      return b.Constant(MakeHidesAll());
  }
  return {};
}

const std::vector<int64_t> kSwapHeads = {0, 2, 1, 3};

// Attention between functions of weights, and the gradients of all three. `split`: the weights are [B,S,H,D], as
// projections give them, and so is y.
Graph MakeGraph(Mask kind, const Attrs& attrs = {{"scale", 0.5}}, bool split = false) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> in;
  std::vector<ValueId> weights;
  for (const char* name : {"q", "k", "v"}) {
    const Val w = b.Input(InputKind::kParameter, name, {DType::kFloat32, split ? kSplit : kHeads});
    weights.push_back(w.id());
    in.push_back(split ? Transpose(Tanh(w), kSwapHeads) : Tanh(w));
  }
  in.push_back(MakeMask(b, kind));
  if (attrs.Has("ratio")) in.push_back(b.Input(InputKind::kFeed, "key", {DType::kUInt32, {4}}));
  Val y = b.Op("Attention", in, attrs);
  if (split) y = Transpose(y, kSwapHeads);
  const Val sum = ReduceSum(y * y, {}, false);
  graph.AddOutput("loss", sum.id());
  const auto gradients = Differentiate(&graph, sum.id(), weights, b.Scalar(DType::kFloat32, 1).id());
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  for (ValueId w : weights) graph.AddOutput("d" + graph.inputs()[graph.value(w).index].name, gradients->at(w));
  return graph;
}

const Node* FindNode(const Graph& graph, std::string_view op) {
  const auto it = std::ranges::find(graph.nodes(), op, &Node::op);
  return it == graph.nodes().end() ? nullptr : &*it;
}

int64_t CountNodes(const Graph& graph, std::string_view op) { return std::ranges::count(graph.nodes(), op, &Node::op); }

// Fuses with a kernel that takes everything.
Graph Fuse(const Graph& graph, std::vector<AttentionProblem>* asked = nullptr) {
  const auto choose = [&](const AttentionProblem& p) {
    if (asked != nullptr) asked->push_back(p);
    return std::optional<AttentionChoice>({"any", {2, 3, 32}});
  };
  auto fused = FuseAttention(graph, choose);
  EXPECT_TRUE(fused.ok()) << fused.status();
  const Graph live = Dce(*fused);
  const absl::Status valid = Verify(live);
  EXPECT_TRUE(valid.ok()) << valid;
  return live;
}

TEST(FuseAttention, TheGradientReadsWhatTheForwardNodeSaved) {
  const Graph fused = Fuse(MakeGraph(Mask::kFed));
  ASSERT_EQ(CountNodes(fused, kAttention), 1);
  ASSERT_EQ(CountNodes(fused, kAttentionGrad), 1);
  EXPECT_EQ(CountNodes(fused, "Attention") + CountNodes(fused, "AttentionGrad"), 0);
  const Node &forward = *FindNode(fused, kAttention), &gradient = *FindNode(fused, kAttentionGrad);
  EXPECT_EQ(gradient.inputs[4], forward.outputs[0]);
  EXPECT_EQ(gradient.inputs[5], forward.outputs[1]);
  EXPECT_EQ(fused.type(forward.outputs[1]), (Type{DType::kFloat32, {2, 3, 32}}));
  EXPECT_EQ(forward.attrs.Int("may_hide_all"), 1) << "a mask that is fed may hide everything";
}

TEST(FuseAttention, TransposesOfHeadsBecomeStrides) {
  const Graph fused = Fuse(MakeGraph(Mask::kFed, {{"scale", 0.5}}, /*split=*/true));
  EXPECT_EQ(CountNodes(fused, "Transpose"), 0) << Print(fused);
  EXPECT_EQ(fused.type(FindNode(fused, kAttention)->outputs[0]).shape, kSplit);
  EXPECT_EQ(fused.type(FindNode(fused, kAttentionGrad)->outputs[2]).shape, kSplit);
}

// Rows of elements stay contiguous.
TEST(FuseAttention, OtherTransposesStay) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 3, 4, 5}});
  const Val q = b.Input(InputKind::kFeed, "q", {DType::kFloat32, kHeads});
  const Val k = Transpose(x, {0, 1, 3, 2});
  graph.AddOutput("y", b.Op("Attention", {q, k, k}, {{"scale", 0.5}}).id());
  EXPECT_EQ(CountNodes(Fuse(graph), "Transpose"), 1);
}

TEST(FuseAttention, AConstantMaskOfLaterKeysBecomesAnAttribute) {
  std::vector<AttentionProblem> asked;
  const Graph fused = Fuse(MakeGraph(Mask::kCausal), &asked);
  EXPECT_EQ(FindNode(fused, kAttention)->inputs.size(), 3);
  EXPECT_EQ(FindNode(fused, kAttention)->attrs.Int("causal"), 1);
  EXPECT_EQ(FindNode(fused, kAttentionGrad)->attrs.Int("causal"), 1);
  EXPECT_FALSE(asked[0].mask.has_value());
}

TEST(FuseAttention, AMaskThatHidesMoreStaysAMask) {
  const Graph fused = Fuse(MakeGraph(Mask::kHidesAll));
  EXPECT_EQ(FindNode(fused, kAttention)->inputs.size(), 4);
  EXPECT_EQ(FindNode(fused, kAttention)->attrs.Int("may_hide_all"), 1);
}

TEST(FuseAttention, LeavesDropoutAndCapsAlone) {
  for (const Attrs& attrs : {Attrs{{"scale", 0.5}, {"ratio", 0.1}}, Attrs{{"scale", 0.5}, {"softcap", 2.0}}}) {
    if (attrs.Has("softcap")) {
      EXPECT_EQ(CountNodes(Fuse(MakeGraph(Mask::kNone, attrs)), kAttention), 0);
    } else {
      Attrs dropped = attrs;
      dropped.Set("stream", int64_t{1});
      Graph graph = MakeGraph(Mask::kFed, dropped);
      EXPECT_EQ(CountNodes(Fuse(graph), kAttention), 0);
    }
  }
}

// Two forward passes over the same operands, one of them masked, are two nodes.
TEST(FuseAttention, MasksTellForwardNodesApart) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, kHeads});
  const Val all = b.Op("Attention", {x, x, x}, {{"scale", 0.5}});
  const Val past = b.Op("Attention", {x, x, x, MakeMask(b, Mask::kCausal)}, {{"scale", 0.5}});
  graph.AddOutput("all", all.id());
  graph.AddOutput("past", past.id());
  EXPECT_EQ(CountNodes(Fuse(graph), kAttention), 2);
}

// A gradient reads no logarithms of another kernel than its own.
TEST(FuseAttention, KernelsTellForwardNodesApart) {
  int asked = 0;
  const auto choose = [&](const AttentionProblem&) {
    return std::optional(AttentionChoice{StrCat("kernel", asked++), {2, 3, 32}});
  };
  const auto fused = FuseAttention(MakeGraph(Mask::kNone), choose);
  ASSERT_TRUE(fused.ok()) << fused.status();
  const Graph live = Dce(*fused);
  EXPECT_EQ(CountNodes(live, kAttention), 2);
  const Node& gradient = *FindNode(live, kAttentionGrad);
  EXPECT_EQ(live.producer(gradient.inputs[5])->attrs.String("kernel"), gradient.attrs.String("kernel"));
}

// --- The race, among kernels made of plain products.

at::Tensor Probabilities(const AttentionOperands& x) {
  return x.q.matmul(x.k.transpose(-1, -2)).mul(x.scale).softmax(-1);
}

AttentionSaved RightForward(const AttentionOperands& x) {
  return {.y = Probabilities(x).matmul(x.v), .lse = x.q.sum(-1)};
}

AttentionGradients RightBackward(const at::Tensor& dy, const AttentionOperands& x, const AttentionSaved&) {
  const at::Tensor p = Probabilities(x), dp = dy.matmul(x.v.transpose(-1, -2));
  const at::Tensor ds = p * (dp - (p * dp).sum(-1, true)) * x.scale;
  return {ds.matmul(x.k), ds.transpose(-1, -2).matmul(x.q), p.transpose(-1, -2).matmul(dy)};
}

AttentionSaved SlowForward(const AttentionOperands& x) {
  for (int i = 0; i < 1000; ++i) Probabilities(x);
  return RightForward(x);
}

AttentionGradients WrongBackward(const at::Tensor& dy, const AttentionOperands& x, const AttentionSaved& s) {
  auto [dq, dk, dv] = RightBackward(dy, x, s);
  return {dq, dk * 1.1, dv};
}

AttentionSaved RefusingForward(const AttentionOperands&) { throw std::runtime_error("head dimension"); }

const AttentionProblem kProblem = {
    .q = {DType::kFloat32, {2, 3, 16, 8}},
    .k = {DType::kFloat32, {2, 3, 16, 8}},
    .v = {DType::kFloat32, {2, 3, 16, 8}},
    .mask = {},
    .scale = 0.5,
};

TEST(RaceAttention, TakesTheFastestThatIsRight) {
  const AttentionEntry entries[] = {{"refusing", at::kCPU, true, RefusingForward, RightBackward},
                                    {"wrong", at::kCPU, true, RightForward, WrongBackward},
                                    {"slow", at::kCPU, true, SlowForward, RightBackward},
                                    {"right", at::kCPU, true, RightForward, RightBackward},
                                    {"elsewhere", at::kCUDA, true, RightForward, RightBackward}};
  const auto choice = RaceAttention(kProblem, at::kCPU, entries);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->kernel, "right");
  EXPECT_EQ(choice->lse_shape, (Shape{2, 3, 16}));
  EXPECT_FALSE(RaceAttention(kProblem, at::kCPU, std::span(entries).first(2)).has_value());
}

TEST(RaceAttention, MasksNeedAKernelThatTakesThem) {
  const AttentionEntry entries[] = {{"right", at::kCPU, false, RightForward, RightBackward}};
  AttentionProblem masked = kProblem;
  masked.mask = Type{DType::kFloat32, {16, 16}};
  EXPECT_FALSE(RaceAttention(masked, at::kCPU, entries).has_value());
  EXPECT_TRUE(RaceAttention(kProblem, at::kCPU, entries).has_value());
}

TEST(EntryPoints, MasksKeepFiniteAndHiddenQueriesAreFound) {
  const at::Tensor q = Upload(HostTensor({DType::kFloat32, kHeads}), at::kCPU);
  const at::Tensor mask = Upload(MakeHidesAll(), at::kCPU);
  const at::Tensor m = AsHeadMask(mask, 4, q, q);
  EXPECT_EQ(m.sizes().vec(), (Shape{2, 3, 5, 5}));
  EXPECT_EQ(m.min().item<float>(), std::numeric_limits<float>::lowest());
  const at::Tensor hidden = FindHidden(mask, 4);
  EXPECT_TRUE(hidden[0][0][0][0].item<bool>());
  EXPECT_FALSE(hidden[1][0][0][0].item<bool>());
}

// --- The kernels of this libtorch, against the decomposition on the cpu backend.

TEST(FusedAttention, EqualsTheDecomposition) {
  const bool fuses =
      std::ranges::any_of(AttentionEntries(), [](const AttentionEntry& e) { return e.device == at::kCPU; });
  for (int i = 0; i < 8; ++i) {
    const Mask kind = static_cast<Mask>(i % 4);
    const Graph graph = MakeGraph(kind, {{"scale", 0.5}}, /*split=*/i >= 4);
    const auto legal = PlainBackend().Legalize(graph);
    ASSERT_TRUE(legal.ok()) << legal.status();
    EXPECT_EQ(CountNodes(*legal, kAttention), fuses ? 1 : 0);
    cases::Tensors feeds;
    for (const GraphInput& input : graph.inputs()) {
      cases::Rng rng(feeds.size() + 1);
      HostTensor tensor(graph.type(input.value));
      for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, rng.Uniform(-1, 1));
      feeds[input.name] = tensor;
    }
    const auto got = cases::RunOn(PlainBackend(), graph, feeds);
    const auto want = cases::RunOn(cases::BackendNamed("cpu"), graph, feeds);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(want.ok()) << want.status();
    cases::ExpectNear(*got, *want, 1e-5);
  }
}

// Keys further away than one are hidden: neither causal nor empty.
HostTensor MakeBand(int64_t rows) {
  HostTensor mask({DType::kFloat32, {rows, rows}});
  for (int64_t i = 0; i < mask.size(); ++i) mask.Set(i, std::abs(i % rows - i / rows) > 1 ? -kInfinity : 0);
  return mask;
}

size_t MeasureScratch(bool constant) {
  constexpr int64_t kRows = 64;
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {1, 1, kRows, 8}});
  const Val mask =
      constant ? b.Constant(MakeBand(kRows)) : b.Input(InputKind::kFeed, "mask", {DType::kFloat32, {kRows, kRows}});
  graph.AddOutput("y", b.Op("Attention", {x, x, x, mask}, {{"scale", 0.5}}).id());
  auto program = PlainBackend().Compile(*PlainBackend().Legalize(graph), {});
  EXPECT_TRUE(program.ok()) << program.status();
  return (*program)->memory().scratch;
}

TEST(FusedAttention, ARunConvertsNoConstantMask) {
  if (AttentionEntries().empty()) GTEST_SKIP() << "this libtorch has no fused attention";
  EXPECT_GE(MeasureScratch(/*constant=*/false), MeasureScratch(/*constant=*/true) + MakeBand(64).bytes().size());
}

}  // namespace
}  // namespace onnxtrain::aten
