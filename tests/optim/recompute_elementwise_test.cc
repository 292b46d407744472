// Tests which values RecomputeElementwise keeps for the backward pass, and that results have the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "backends/bound_program.h"
#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/rematerialize.h"
#include "optim/memory/policy.h"
#include "optim/step/loss.h"

namespace onnxtrain {
namespace {

constexpr int64_t kRows = 64, kWidth = 96;

Backend& Cpu() {
  static Backend* backend = CreateBackend("cpu", {}).value().release();
  return *backend;
}

class Layers {
 public:
  Layers() : builder_(&graph_) {}

  Val Input() { return builder_.Input(InputKind::kFeed, "x", {DType::kFloat32, {kRows, kWidth}}); }
  // Returns x·W with a new weight.
  Val Project(Val x) {
    const Val w =
        builder_.Input(InputKind::kParameter, StrCat("w", trained_.size()), {DType::kFloat32, {kWidth, kWidth}});
    trained_.push_back(w.id());
    return MatMul(x, w);
  }
  // Returns the graph with the loss Σy² and its gradients.
  Graph Differentiated(Val y) {
    const Val loss = ReduceSum(y * y, {}, false);
    const Val inv = builder_.Input(InputKind::kFeed, kInverseDenominatorFeed, loss.type());
    const auto gradients = Differentiate(&graph_, loss.id(), trained_, inv.id());
    EXPECT_TRUE(gradients.ok() && builder_.status().ok());
    graph_.AddOutput("loss", loss.id());
    for (ValueId p : trained_) graph_.AddOutput(StrCat("grad", p), gradients->at(p));
    return std::move(graph_);
  }

 private:
  Graph graph_;
  Builder builder_;
  std::vector<ValueId> trained_;
};

// Returns the values of the forward pass that the backward pass of the fused program reads, without inputs.
std::multiset<std::string> KeptValues(const Graph& legal) {
  const Graph fused = Cpu().Fuse(legal)->graph;
  const std::vector<bool> backward = DependsOn(fused, kInverseDenominatorFeed);
  std::set<ValueId> kept;
  for (size_t n = 0; n < backward.size(); ++n) {
    if (!backward[n]) continue;
    for (ValueId v : fused.nodes()[n].inputs) {
      const Node* node = v == kNoValue ? nullptr : fused.producer(v);
      for (; node != nullptr && node->op == "Reshape"; node = fused.producer(v)) v = node->inputs[0];
      if (node != nullptr && !IsConstant(*node) && !backward[fused.value(v).node]) kept.insert(v);
    }
  }
  std::multiset<std::string> ops;
  for (ValueId v : kept) ops.insert(fused.producer(v)->op);
  return ops;
}

void ExpectSameBits(const Graph& before, const Graph& after) {
  const auto run = [](const Graph& legal) {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> uniform(-0.2, 0.2);
    BoundProgram program = BoundProgram::Make(Cpu(), legal).value();
    for (const GraphInput& input : legal.inputs()) {
      HostTensor x(legal.type(input.value));
      for (int64_t i = 0; i < x.size(); ++i) x.Set(i, uniform(random));
      EXPECT_TRUE(program.Set(input.name, x).ok());
    }
    EXPECT_TRUE(program.Run().ok());
    std::vector<HostTensor> results;
    for (const GraphOutput& output : legal.outputs()) results.push_back(program.Get(output.name).value());
    return results;
  };
  const std::vector<HostTensor> want = run(before), got = run(after);
  for (size_t o = 0; o < want.size(); ++o) {
    EXPECT_TRUE(std::ranges::equal(want[o].bytes(), got[o].bytes())) << before.outputs()[o].name;
  }
}

TEST(RecomputeElementwise, AGatedLayerKeepsTheResultsOfItsProducts) {
  Layers layers;
  const Val x = layers.Input(), gate = layers.Project(x), up = layers.Project(x);
  const Graph legal = *Cpu().Legalize(layers.Differentiated(layers.Project(gate * Sigmoid(gate) * up)));
  const Graph now = RecomputeElementwise(legal);
  EXPECT_GT(KeptValues(legal).size(), 3u) << Print(legal);
  // gate, up, what the last product has read, and its result, of which the loss is the square.
  EXPECT_EQ(KeptValues(now), (std::multiset<std::string>{"MatMul", "MatMul", "MatMul", "cpu.Fused"})) << Print(now);
  ExpectSameBits(legal, now);
}

TEST(RecomputeElementwise, KeepsWhatIsNoLargerThanItsOperands) {
  Layers layers;
  const Val h = Tanh(layers.Project(layers.Input()));
  const Graph legal = *Cpu().Legalize(layers.Differentiated(layers.Project(h)));
  const Graph now = RecomputeElementwise(legal);
  EXPECT_EQ(std::ranges::count(now.nodes(), "Tanh", &Node::op), 1) << Print(now);
  ExpectSameBits(legal, now);
}

// The sums are kept, not their terms, also where an operator of the backward pass that depends on no gradient could be
// computed together with them.
TEST(RecomputeElementwise, GatedSumsAreKeptRatherThanTheirTerms) {
  Layers layers;
  const Val x = layers.Input(), gate = layers.Project(x) + layers.Project(x),
            up = layers.Project(x) + layers.Project(x);
  const Graph legal = *Cpu().Legalize(layers.Differentiated(layers.Project(gate * Sigmoid(gate) * up)));
  const Graph now = RecomputeElementwise(legal);
  EXPECT_EQ(KeptValues(now), (std::multiset<std::string>{"MatMul", "cpu.Fused", "cpu.Fused", "cpu.Fused"}))
      << Print(now);
  EXPECT_EQ(std::ranges::count((*Cpu().Compile(now, {}))->graph().nodes(), "cpu.Fused", &Node::op), 3);
  ExpectSameBits(legal, now);
}

TEST(RecomputeElementwise, KeepsViewsThatTheBackwardPassReads) {
  Layers layers;
  const Val a = layers.Project(layers.Input()), squashed = Sigmoid(a);
  const Val other = layers.Project(Reshape(squashed, {kRows, kWidth}));
  const Graph legal = *Cpu().Legalize(layers.Differentiated(other * squashed * a));
  const Graph now = RecomputeElementwise(legal);
  ExpectSameBits(legal, now);
  EXPECT_LE(KeptValues(now).size(), KeptValues(legal).size());
}

// Chains that are longer than a kernel are not computed again: their clones would be kept as long as the originals.
TEST(RecomputeElementwise, KeepsLongChains) {
  Layers layers;
  Val x = layers.Project(layers.Input());
  for (int i = 0; i < 200; ++i) x = x * Sigmoid(x);
  const Graph legal = *Cpu().Legalize(layers.Differentiated(layers.Project(x)));
  EXPECT_EQ(std::ranges::count(RecomputeElementwise(legal).nodes(), "Sigmoid", &Node::op), 200);
}

TEST(RecomputeElementwise, NothingToDoWithoutABackwardPass) {
  Graph g;
  Builder b(&g);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {kRows, kWidth}});
  g.AddOutput("y", (Exp(x) * Sigmoid(x)).id());
  EXPECT_EQ(RecomputeElementwise(g), g);
}

// Returns the arena that the cpu backend plans.
size_t PlanArena(const Graph& legal) { return (*Cpu().Compile(legal, {}))->memory().arena; }

TEST(RecomputeElementwise, NeedsNoMoreMemoryAndChangesNoBits) {
  int64_t less = 0;
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    std::mt19937 random(seed);
    Layers layers;
    std::vector<Val> values = {layers.Input()};
    for (int i = 0; i < 12; ++i) {
      const Val x = values.back(), other = values[random() % values.size()];
      const std::function<Val()> next[] = {
          [&] { return layers.Project(x); },    [&] { return x * Sigmoid(other); },
          [&] { return Tanh(x) + other; },      [&] { return x * other * 0.5; },
          [&] { return Exp(x * 0.1) - other; }, [&] { return x.b().Op("Softplus", {x}) * other; }};
      values.push_back(next[random() % std::size(next)]());
    }
    const Graph legal = *Cpu().Legalize(layers.Differentiated(layers.Project(values.back())));
    const Graph now = RecomputeElementwise(legal);
    SCOPED_TRACE(seed);
    ExpectSameBits(legal, now);
    const size_t before = PlanArena(legal), after = PlanArena(now);
    EXPECT_LE(static_cast<double>(after), 1.02 * static_cast<double>(before));
    less += after < before;
  }
  EXPECT_GE(less, 10);
}

}  // namespace
}  // namespace onnxtrain
