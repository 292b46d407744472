// Attention over heads where the projections have them, against the host's evaluation of its decomposition.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/host_eval.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

Type F(Shape shape) { return {DType::kFloat32, std::move(shape)}; }

HostTensor KeyWords() {
  const int64_t words[] = {42, 3, 1, 0};
  return HostTensor::FromInts({DType::kUInt32, {4}}, words);
}

// Dropouts and caps of attention.
const Attrs kAttentionForms[] = {
    {},
    {{"ratio", 0.25}, {"stream", int64_t{5}}},
    {{"softcap", 2.0}},
    {{"ratio", 0.5}, {"stream", int64_t{9}}, {"softcap", 0.5}},
};

// The columns that a mask hides from each row of a sample.
struct MaskForm {
  const char* name;
  int64_t samples;  // 1: all share one mask
  bool (*hides)(int64_t sample, int64_t row, int64_t column);
  double slope = 0;  // what a mask adds to other scores, by distance
};

constexpr MaskForm kCausal = {"causal", 1, [](int64_t, int64_t row, int64_t column) { return column > row; }};

constexpr MaskForm kRanges[] = {
    {"window", 1, [](int64_t, int64_t row, int64_t column) { return column > row || column + 70 <= row; }},
    {"segments", 2,
     [](int64_t sample, int64_t row, int64_t column) {
       const int64_t start = 65 + 75 * sample;
       return column > row || (column < start) != (row < start);
     }},
    {"padding before a sample", 2,
     [](int64_t sample, int64_t row, int64_t column) { return column > row || (sample == 1 && column < 66); }},
    {"distances", 1, [](int64_t, int64_t row, int64_t column) { return column > row; }, 0.02},
};

Val MakeMask(Builder& b, int64_t n, double hidden, const MaskForm& form) {
  HostTensor mask(F({form.samples, 1, n, n}));
  for (int64_t i = 0; i < mask.size(); ++i) {
    const int64_t row = i / n % n, column = i % n;
    mask.Set(i, form.hides(i / n / n, row, column) ? hidden : form.slope * static_cast<double>(column - row));
  }
  return b.Constant(mask);
}

// Forward and backward over heads as projections leave them: [batch, tokens, heads, depth]. `attrs`: of a dropout or
// cap.
Graph SplitHeads(int64_t tokens, double hidden, DType dtype = DType::kFloat32, int64_t depth = 16, Attrs attrs = {},
                 const MaskForm& form = kCausal) {
  Graph graph;
  Builder b(&graph);
  const auto heads = [&](const char* name) {
    return Transpose(b.Input(InputKind::kFeed, name, {dtype, {2, tokens, 3, depth}}), {0, 2, 1, 3});
  };
  const Val q = heads("q"), k = Transpose(b.Input(InputKind::kFeed, "k", {dtype, {2, depth, 3, tokens}}), {0, 2, 3, 1}),
            v = heads("v");
  const Val mask = hidden == 0 ? Val() : MakeMask(b, tokens, hidden, form);
  const Val key = attrs.Has("ratio") ? b.Constant(KeyWords()) : Val();
  attrs.Set("scale", 0.25);
  graph.AddOutput("y", Transpose(b.Op("Attention", {q, k, v, mask, key}, attrs), {0, 2, 1, 3}).id());
  const auto grads = b.Ops("AttentionGrad", {heads("dy"), q, k, v, mask, key}, attrs);
  for (size_t i = 0; i < grads.size(); ++i) graph.AddOutput(StrCat("d", i), Transpose(grads[i], {0, 2, 1, 3}).id());
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

bool IsAttentionAlone(const Graph& graph) {
  return std::ranges::all_of(graph.nodes(), [](const Node& node) {
    return node.op == "Constant" || node.op == "Reshape" || node.op == "cpu.VisibleKeys" ||
           node.op.starts_with("cpu.Attention");
  });
}

void CheckHeads(const Graph& graph) {
  std::mt19937 random(3);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs()) inputs[input.name] = RandomTensor(graph.type(input.value), random);
  const auto want = Interpret(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  ForEachTarget([&] {
    const auto got = RunOnce(Cpu(), graph, inputs);
    for (size_t o = 0; o < got.size(); ++o) ExpectClose(got[o], (*want)[o], 1e-5, 1);
  });
}

void CheckSplitHeads(const Graph& graph) {
  const auto legal = Cpu().Legalize(graph);
  ASSERT_TRUE(legal.ok()) << legal.status();
  EXPECT_TRUE(IsAttentionAlone(*legal)) << Print(*legal);
  CheckHeads(graph);
}

TEST(CpuAttention, TakesHeadsWhereTheyAre) {
  for (const Attrs& form : kAttentionForms) {
    for (int64_t tokens : {1, 7, 100, 130}) {
      for (double hidden : {0.0, -1e9, -std::numeric_limits<double>::infinity()}) {
        SCOPED_TRACE(StrCat(tokens, " tokens, hidden ", hidden, ", dropout ", form.Float("ratio"), ", cap ",
                            form.Float("softcap")));
        CheckSplitHeads(SplitHeads(tokens, hidden, DType::kFloat32, 16, form));
      }
    }
  }
}

// One query of each of 6 heads, which share 2 heads of keys and values, as a decoder computes a token.
Graph OneQueryOfGroups(DType dtype, bool masked) {
  constexpr int64_t kBatch = 2, kGroups = 2, kHeads = 6, kKeys = 75, kDepth = 20;
  Graph graph;
  Builder b(&graph);
  const auto repeated = [&](const char* name) {
    const Val x = b.Input(InputKind::kFeed, name, {dtype, {kBatch, kGroups, kKeys, kDepth}});
    const Val wide =
        Expand(Reshape(x, {kBatch, kGroups, 1, kKeys, kDepth}), {kBatch, kGroups, kHeads / kGroups, kKeys, kDepth});
    return Reshape(wide, {kBatch, kHeads, kKeys, kDepth});
  };
  const Val q = b.Input(InputKind::kFeed, "q", {dtype, {kBatch, kHeads, 1, kDepth}});
  const Val mask = masked ? Cast(b.Input(InputKind::kFeed, "mask", F({kBatch, 1, 1, kKeys})), dtype) : Val();
  graph.AddOutput("y", b.Op("Attention", {q, repeated("k"), repeated("v"), mask}, {{"scale", 0.25}}).id());
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

TEST(CpuAttention, QueriesOfAGroupShareItsKeys) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const bool masked : {false, true}) {
      const Graph graph = OneQueryOfGroups(dtype, masked);
      const auto legal = Cpu().Legalize(graph);
      ASSERT_TRUE(legal.ok()) << legal.status();
      EXPECT_TRUE(std::ranges::none_of(legal->nodes(), [](const Node& n) { return n.op == "Expand"; }))
          << Print(*legal);
      std::mt19937 random(3);
      std::map<std::string, HostTensor> inputs;
      for (const GraphInput& input : graph.inputs()) inputs[input.name] = RandomTensor(graph.type(input.value), random);
      const auto want = Interpret(graph, inputs);
      ASSERT_TRUE(want.ok()) << want.status();
      const double tolerance = dtype == DType::kFloat32 ? 1e-5 : 2e-2;
      ForEachTarget([&] { ExpectClose(RunOnce(Cpu(), graph, inputs)[0], (*want)[0], tolerance, 1); });
    }
  }
}

// A mask with a row for each head cannot be shared by the queries of a group.
TEST(CpuAttention, MasksByHeadKeepTheirHeads) {
  Graph graph;
  Builder b(&graph);
  const Val k = b.Input(InputKind::kFeed, "k", F({1, 2, 9, 4}));
  const Val all = Reshape(Expand(Reshape(k, {1, 2, 1, 9, 4}), {1, 2, 2, 9, 4}), {1, 4, 9, 4});
  const Val q = b.Input(InputKind::kFeed, "q", F({1, 4, 1, 4})), mask = b.Input(InputKind::kFeed, "m", F({1, 4, 1, 9}));
  graph.AddOutput("y", b.Op("Attention", {q, all, all, mask}, {{"scale", 0.5}}).id());
  std::mt19937 random(3);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs()) inputs[input.name] = RandomTensor(graph.type(input.value), random);
  const auto want = Interpret(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  ExpectClose(RunOnce(Cpu(), graph, inputs)[0], (*want)[0], 1e-5, 1);
}

// With v the identity, the result is the probabilities: zero exactly where an unfused dropout of that tensor is.
TEST(CpuAttention, DropsTheSameProbabilities) {
  constexpr int64_t kTokens = 37;
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Graph graph;
    Builder b(&graph);
    const Val q = b.Input(InputKind::kFeed, "q", {dtype, {2, 3, kTokens, 8}});
    HostTensor unit(F({kTokens, kTokens}));
    for (int64_t i = 0; i < kTokens; ++i) unit.Set(i * kTokens + i, 1);
    const Val v = Cast(Expand(b.Constant(unit), {2, 3, kTokens, kTokens}), dtype), key = b.Constant(KeyWords());
    const Attrs dropout = kAttentionForms[1];
    graph.AddOutput("p", b.Op("Attention", {q, q, v, Val(), key}, dropout).id());
    const Val ones = Expand(b.Scalar(DType::kFloat32, 1), {2, 3, kTokens, kTokens});
    graph.AddOutput("mask", b.Op("Dropout", {ones, key}, dropout).id());
    ASSERT_TRUE(b.status().ok()) << b.status();
    std::mt19937 random(3);
    const auto got = RunOnce(Cpu(), graph, {{"q", RandomTensor(graph.type(q.id()), random)}});
    for (int64_t i = 0; i < got[0].size(); ++i) ASSERT_EQ(got[0].At(i) == 0, got[1].At(i) == 0) << i;
  }
}

double RelativeError(const HostTensor& got, const HostTensor& want) {
  double error = 0, norm = 1e-12;
  for (int64_t i = 0; i < got.size(); ++i) {
    error += std::pow(got.At(i) - want.At(i), 2);
    norm += std::pow(want.At(i), 2);
  }
  return std::sqrt(error / norm);
}

// Pairs of odd numbers of keys, queries and columns, beside float32 on the same numbers.
void CheckBFloat16Heads(const Graph& graph, const Graph& wide) {
  const auto legal = Cpu().Legalize(graph);
  ASSERT_TRUE(legal.ok()) << legal.status();
  const bool widened =
      std::any_of(legal->nodes().begin(), legal->nodes().end(), [](const Node& n) { return n.op == "Cast"; });
  if (widened) GTEST_SKIP() << "this processor multiplies no bf16";
  EXPECT_TRUE(IsAttentionAlone(*legal)) << Print(*legal);
  std::mt19937 random(3);
  std::map<std::string, HostTensor> halves, floats;
  for (const GraphInput& input : graph.inputs()) {
    halves[input.name] = RandomTensor(graph.type(input.value), random);
    HostTensor x(F(graph.type(input.value).shape));
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, halves[input.name].At(i));
    floats[input.name] = std::move(x);
  }
  const auto want = RunOnce(Cpu(), wide, floats);
  ForEachTarget([&] {
    const auto got = RunOnce(Cpu(), graph, halves);
    for (size_t o = 0; o < got.size(); ++o) EXPECT_LE(RelativeError(got[o], want[o]), 0.006) << o;
  });
}

// Pairs of odd numbers of keys, queries and columns, beside float32 on the same numbers.
TEST(CpuAttention, OfBFloat16) {
  for (const Attrs& form : kAttentionForms) {
    for (int64_t tokens : {1, 7, 100, 131}) {
      for (const auto& [hidden, depth] : {std::pair(0.0, 16), {-1e9, 16}, {-1e9, 64}, {-1e30, 5}}) {
        SCOPED_TRACE(StrCat(tokens, " tokens, hidden ", hidden, ", depth ", depth, ", dropout ", form.Float("ratio"),
                            ", cap ", form.Float("softcap")));
        CheckBFloat16Heads(SplitHeads(tokens, hidden, DType::kBFloat16, depth, form),
                           SplitHeads(tokens, hidden, DType::kFloat32, depth, form));
      }
    }
  }
}

// Rows of as many bytes as displace each other in a cache are padded.
TEST(CpuAttention, OfLongRowsInBFloat16) {
  for (const double hidden : {0.0, -1e9}) {
    CheckBFloat16Heads(SplitHeads(1024, hidden, DType::kBFloat16, 64), SplitHeads(1024, hidden, DType::kFloat32, 64));
  }
}

// Six heads of queries that share `groups` heads of keys and values, forward and backward, as exporters write them:
// keys as the projection leaves them, values transposed together with their repetition.
Graph SharedHeads(int64_t groups, DType dtype, int64_t tokens, Attrs attrs, const MaskForm& form, bool by_head,
                  int64_t heads = 6) {
  constexpr int64_t kBatch = 2, kDepth = 16;
  const Shape wide = {kBatch, groups, heads / groups, tokens, kDepth}, all = {kBatch, heads, tokens, kDepth};
  Graph graph;
  Builder b(&graph);
  const auto feed = [&](const char* name, Shape shape) { return b.Input(InputKind::kFeed, name, {dtype, shape}); };
  const Val q = Transpose(feed("q", {kBatch, tokens, heads, kDepth}), {0, 2, 1, 3});
  const Val k = Reshape(
      Expand(Reshape(feed("k", {kBatch, groups, tokens, kDepth}), {kBatch, groups, 1, tokens, kDepth}), wide), all);
  const Val v = Reshape(Expand(Transpose(feed("v", {kBatch, 1, tokens, groups, kDepth}), {0, 3, 1, 2, 4}), wide), all);
  Val mask = MakeMask(b, tokens, -1e9, form);
  if (by_head) {
    const Val slopes = b.Input(InputKind::kFeed, "slopes", F({1, heads, 1, tokens}));
    mask = mask + slopes;
  }
  const Val key = attrs.Has("ratio") ? b.Constant(KeyWords()) : Val();
  attrs.Set("scale", 0.25);
  graph.AddOutput("y", Transpose(b.Op("Attention", {q, k, v, mask, key}, attrs), {0, 2, 1, 3}).id());
  const auto grads = b.Ops("AttentionGrad", {feed("dy", all), q, k, v, mask, key}, attrs);
  graph.AddOutput("dq", Transpose(grads[0], {0, 2, 1, 3}).id());
  for (const size_t o : {1, 2}) {
    const Val sum = ReduceSum(Reshape(Cast(grads[o], DType::kFloat32), wide), {2}, o == 1);
    graph.AddOutput(o == 1 ? "dk" : "dv", Cast(sum, dtype).id());
  }
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

TEST(CpuAttention, ReadsSharedHeadsOnce) {
  for (const int64_t groups : {1, 2, 3}) {
    for (const Attrs& attrs : kAttentionForms) {
      for (const int64_t tokens : {7, 131}) {
        for (const bool by_head : {false, true}) {
          SCOPED_TRACE(StrCat(groups, " groups, ", tokens, " tokens, dropout ", attrs.Float("ratio"), ", cap ",
                              attrs.Float("softcap"), by_head ? ", a mask for each head" : ""));
          const auto make = [&](DType dtype) {
            return SharedHeads(groups, dtype, tokens, attrs, by_head ? kCausal : kRanges[2], by_head);
          };
          const Graph graph = make(DType::kFloat32);
          by_head ? CheckHeads(graph) : CheckSplitHeads(graph);
          if (!by_head) CheckBFloat16Heads(make(DType::kBFloat16), graph);
        }
      }
    }
  }
}

// So many groups of heads that each is the work of one thread.
TEST(CpuAttention, OfManySharedHeads) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto make = [](DType type) { return SharedHeads(16, type, 33, kAttentionForms[1], kRanges[2], false, 48); };
    dtype == DType::kFloat32 ? CheckSplitHeads(make(dtype)) : CheckBFloat16Heads(make(dtype), make(DType::kFloat32));
  }
}

TEST(CpuAttention, SkipsKeysThatMasksHide) {
  constexpr int64_t kTokens = 201;
  for (const MaskForm& form : kRanges) {
    for (const Attrs& attrs : kAttentionForms) {
      for (double hidden : {-1e9, -std::numeric_limits<double>::infinity()}) {
        SCOPED_TRACE(StrCat(form.name, ", hidden ", hidden, ", dropout ", attrs.Float("ratio"), ", cap ",
                            attrs.Float("softcap")));
        const Graph graph = SplitHeads(kTokens, hidden, DType::kFloat32, 16, attrs, form);
        CheckSplitHeads(graph);
        CheckBFloat16Heads(SplitHeads(kTokens, hidden, DType::kBFloat16, 16, attrs, form), graph);
      }
    }
  }
}

// Windows and groups of heads across several blocks of keys.
TEST(CpuAttention, AddsUpBlocksOfKeys) {
  constexpr int64_t kTokens = 389;
  for (const MaskForm& form : {kRanges[0], kRanges[3]}) {
    SCOPED_TRACE(form.name);
    const Attrs& attrs = kAttentionForms[3];
    const auto split = [&](DType dtype) { return SplitHeads(kTokens, -1e9, dtype, 16, attrs, form); };
    const auto shared = [&](DType dtype) { return SharedHeads(2, dtype, kTokens, attrs, form, false); };
    CheckSplitHeads(split(DType::kFloat32));
    CheckSplitHeads(shared(DType::kFloat32));
    CheckBFloat16Heads(split(DType::kBFloat16), split(DType::kFloat32));
    CheckBFloat16Heads(shared(DType::kBFloat16), shared(DType::kFloat32));
  }
}

int64_t CountForwardPasses(const Graph& graph) {
  const auto legal = Cpu().Legalize(graph);
  EXPECT_TRUE(legal.ok()) << legal.status();
  return std::ranges::count_if(legal->nodes(), [](const Node& node) { return node.op == "cpu.Attention"; });
}

TEST(CpuAttention, GradientReadsTheForwardPass) {
  EXPECT_EQ(CountForwardPasses(SplitHeads(7, -1e9)), 1);
  EXPECT_EQ(CountForwardPasses(SharedHeads(2, DType::kFloat32, 7, kAttentionForms[1], kCausal, true)), 1);
}

// The gradient alone, and beside the attention of other numbers.
TEST(CpuAttention, GradientWithoutTheForwardPass) {
  for (const double scale : {0.5, 0.25}) {
    Graph graph;
    Builder b(&graph);
    std::vector<Val> x;
    for (const char* name : {"dy", "q", "k", "v"})
      x.push_back(b.Input(InputKind::kFeed, name, {DType::kFloat32, {2, 3, 9, 8}}));
    if (scale == 0.25) graph.AddOutput("y", b.Op("Attention", {x[1], x[2], x[3]}, {{"scale", 0.5}}).id());
    const auto grads = b.Ops("AttentionGrad", x, {{"scale", scale}});
    for (size_t i = 0; i < grads.size(); ++i) graph.AddOutput(StrCat("d", i), grads[i].id());
    ASSERT_TRUE(b.status().ok()) << b.status();
    EXPECT_EQ(CountForwardPasses(graph), scale == 0.25 ? 2 : 1);
    CheckHeads(graph);
  }
}

}  // namespace
}  // namespace onnxtrain
