// Recomputation against an exhaustive search, and what every choice of it must obey.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>

#include "backends/bound_program.h"
#include "backends/memory_plan.h"
#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/rematerialize.h"
#include "frontend/passes/rewrite.h"
#include "optim/memory/policy.h"
#include "optim/memory/search.h"
#include "optim/plan/micro_batch.h"
#include "optim/step/loss.h"

namespace onnxtrain {
namespace {

// A chain of products and cheap operators of different sizes with some joins, and its backward pass.
Graph RandomJoint(int depth, uint32_t seed) {
  std::mt19937 random(seed);
  Graph g;
  Builder b(&g);
  Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {64, 32}});
  std::vector<Val> before = {x};
  std::vector<ValueId> trained;
  for (int i = 0; i < depth; ++i) {
    const int64_t width = x.dim(1);
    switch (random() % 5) {
      case 0: {
        const int64_t next = int64_t{16} << (random() % 3);
        const Val w = b.Input(InputKind::kParameter, StrCat("w", i), {DType::kFloat32, {width, next}});
        trained.push_back(w.id());
        x = MatMul(x, w);
        break;
      }
      case 1:
        x = Tanh(x);
        break;
      case 2:
        x = Exp(x);
        break;
      case 3:
        x = x * Sigmoid(x);
        break;
      default: {
        const Val other = before[random() % before.size()];
        x = other.dim(1) == width ? x * other : Sigmoid(x);
      }
    }
    before.push_back(x);
  }
  const Val w = b.Input(InputKind::kParameter, "w", {DType::kFloat32, {x.dim(1), 8}});
  trained.push_back(w.id());
  const Val loss = ReduceSum(MatMul(x, w), {}, false);
  const Val inv = b.Input(InputKind::kFeed, kInverseDenominatorFeed, loss.type());
  const auto gradients = Differentiate(&g, loss.id(), trained, inv.id());
  EXPECT_TRUE(gradients.ok() && b.status().ok());
  g.AddOutput("loss", loss.id());
  for (ValueId p : trained) g.AddOutput(StrCat("grad", p), gradients->at(p));
  return g;
}

std::vector<size_t> NoWorkspace(const Graph& g) { return std::vector<size_t>(g.nodes().size(), 0); }

struct Oracle {
  std::vector<std::pair<int64_t, double>> all;  // peak and extra time of every subset of the candidates

  explicit Oracle(const RecomputeCostModel& model) {
    const auto& nodes = model.candidates();
    RecomputeTrace trace;
    for (uint32_t bits = 0; bits < (1u << nodes.size()); ++bits) {
      RecomputeSchedule recomputed(model.graph().nodes().size());
      for (size_t i = 0; i < nodes.size(); ++i) recomputed[nodes[i]] = (bits >> i & 1) != 0 ? Clones::Once() : Clones();
      model.Simulate(recomputed, &trace);
      all.emplace_back(trace.peak, trace.extra_seconds);
    }
  }
  double Best(int64_t limit) const {
    double best = 1e9;
    for (const auto& [peak, seconds] : all) {
      if (peak <= limit) best = std::min(best, seconds);
    }
    return best;
  }
};

TEST(Recompute, WithinFivePercentOfTheOptimum) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    const Graph g = RandomJoint(5 + static_cast<int>(seed % 6), seed);
    const RecomputePlanner planner(g, NoWorkspace(g), 64);
    const RecomputeCostModel model = planner.Model();
    if (model.candidates().size() > 14) continue;
    const Oracle oracle(model);
    const auto frontier = RecomputeFrontier(model);
    const int64_t most = frontier.front().peak;
    for (int part = 100; part >= 20; part -= 4) {
      const int64_t limit = most * part / 100;
      const double best = oracle.Best(limit);
      if (best > 1e8) break;  // nothing fits
      double found = 1e9;
      for (const RecomputeChoice& c : frontier) {
        if (c.peak <= limit) found = std::min(found, c.extra_seconds);
      }
      EXPECT_LE(model.total_seconds() + found, 1.05 * (model.total_seconds() + best))
          << "seed " << seed << " at " << part << "%";
    }
  }
}

TEST(Recompute, SimulatedAndPlannedPeaksAgree) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const Graph g = RandomJoint(24, seed);
    const RecomputePlanner planner(g, NoWorkspace(g), 64);
    for (const RecomputePlan& plan : planner.Frontier()) {
      RecomputeTrace trace;
      RecomputeSchedule recomputed = plan.recomputed;
      recomputed.resize(planner.Model().graph().nodes().size());
      planner.Model().Simulate(recomputed, &trace);
      EXPECT_LE(plan.lower_bound, static_cast<size_t>(trace.peak)) << seed;  // the planner may order better
      EXPECT_LE(static_cast<double>(plan.arena), 1.1 * static_cast<double>(trace.peak)) << seed;
    }
  }
}

TEST(Recompute, PlansAreSmallerAndSlowerOneByOneAndAlwaysTheSame) {
  const Graph g = RandomJoint(60, 7);
  const auto once = RecomputePlanner(g, NoWorkspace(g), 64).Frontier(),
             recomputed = RecomputePlanner(g, NoWorkspace(g), 64).Frontier();
  ASSERT_GT(once.size(), 4u);
  ASSERT_EQ(once.size(), recomputed.size());
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_TRUE(once[i].recomputed == recomputed[i].recomputed);
    if (i == 0) continue;
    EXPECT_LT(once[i].arena, once[i - 1].arena);
    EXPECT_GE(once[i].extra_seconds, once[i - 1].extra_seconds);
  }
  EXPECT_LE(once.back().arena, once.front().arena / 2);
}

TEST(Recompute, AMoreGenerousLimitIsNeverSlowerAndLimitsHold) {
  const Graph g = RandomJoint(40, 3);
  const RecomputePlanner planner(g, NoWorkspace(g), 64);
  const size_t none = planner.Plan(RecomputeMode::kNone).arena;
  double slowest = 1e9;
  for (size_t part = 10; part <= 110; part += 5) {
    const size_t limit = none * part / 100;
    size_t smallest = 0;
    const auto plan = ChooseRecompute(planner, RecomputeMode::kBudget, limit, &smallest);
    if (!plan.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(plan.status()));
      EXPECT_GT(smallest, limit);
      EXPECT_TRUE(ChooseRecompute(planner, RecomputeMode::kBudget, smallest, &smallest).ok());
      continue;
    }
    EXPECT_LE(plan->arena, limit);
    EXPECT_LE(plan->seconds, slowest);
    slowest = plan->seconds;
  }
  EXPECT_LT(slowest, 1e8);
}

TEST(Recompute, UpdatesAndGraphsWithoutBackwardPassStay) {
  Graph g;
  Builder b(&g);
  const Val p = b.Input(InputKind::kState, "p", {DType::kFloat32, {8}});
  g.AddOutput("p_new", (p * 2.0).id(), p.id());
  const RecomputePlanner planner(g, NoWorkspace(g), 64);
  EXPECT_FALSE(planner.Applies());
  EXPECT_EQ(planner.Frontier().size(), 1u);
  size_t smallest = 0;
  EXPECT_TRUE(ChooseRecompute(planner, RecomputeMode::kAuto, 1 << 20, &smallest).ok());
}

// The forward pass writes an output alone, and the backward pass reads inputs alone.
TEST(Recompute, GraphsWithoutCandidatesHaveOnePlan) {
  Graph g;
  Builder b(&g);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {64, 32}});
  const Val loss = ReduceSum(x, {}, false);
  const Val inv = b.Input(InputKind::kFeed, kInverseDenominatorFeed, loss.type());
  g.AddOutput("loss", loss.id());
  g.AddOutput("grad", MatMul(x, Tanh(Expand(inv, {64, 8})), true).id());
  const RecomputePlanner planner(g, NoWorkspace(g), 64);
  EXPECT_TRUE(planner.Applies());
  EXPECT_TRUE(planner.Model().candidates().empty());
  EXPECT_EQ(planner.Frontier().size(), 1u);
}

// Layers of a packed (here: transposed) weight each, whose products are worth repeating where memory is scarce.
TEST(Recompute, WhatIsMadeOfWeightsIsMadeAnewForEveryReader) {
  Graph g;
  Builder b(&g);
  constexpr int kLayers = 8;
  std::vector<Val> weights, h = {b.Input(InputKind::kFeed, "x", {DType::kFloat32, {64, 32}})};
  for (int i = 0; i < kLayers; ++i) {
    weights.push_back(b.Input(InputKind::kParameter, StrCat("w", i), {DType::kFloat32, {32, 32}}));
    h.push_back(Tanh(MatMul(h.back(), Transpose(weights.back(), {1, 0}))));
  }
  Val dy = b.Input(InputKind::kFeed, kInverseDenominatorFeed, {DType::kFloat32, {64, 32}});
  for (int i = kLayers; i > 0; --i) {
    const Val dh = dy * h[i];
    g.AddOutput(StrCat("grad", i), MatMul(h[i - 1], dh, true, false).id());
    dy = MatMul(dh, weights[i - 1]);
  }
  ASSERT_TRUE(b.status().ok());
  const RecomputePlanner planner(g, NoWorkspace(g), 64);
  int64_t repeated = 0;
  for (const RecomputePlan& plan : planner.Frontier()) {
    repeated = std::max(repeated, plan.repeated);
    const Graph graph = planner.PlannedGraph(plan);
    const auto readers = ComputeUsers(graph);
    for (const Node& node : graph.nodes()) {
      if (node.op != "Transpose") continue;
      EXPECT_EQ(readers[node.outputs[0]].size(), 1u) << plan.repeated;
    }
  }
  EXPECT_GE(repeated, 6) << "products have been repeated";
}

TEST(Recompute, SchedulesOfUnfusedGraphsApplyAsPlanned) {
  const Graph g = RandomJoint(30, 5);
  FusedGraph same{g, std::vector<ValueId>(g.values().size())};
  std::iota(same.values.begin(), same.values.end(), 0);
  const RecomputePlanner planner(g, NoWorkspace(g), 64);
  for (const RecomputePlan& plan : planner.Frontier())
    EXPECT_TRUE(ApplyRecompute(g, same, planner, plan.recomputed) == planner.PlannedGraph(plan));
}

TEST(Recompute, FrontiersOfEqualGraphsArePlannedOnce) {
  const Graph g = RandomJoint(20, 3), other = RandomJoint(20, 4);
  RecomputeMemo memo;
  const auto plan = [&](const Graph& graph, size_t workspace) {
    const std::vector<size_t> bytes(graph.nodes().size(), workspace);
    return &RecomputePlanner(graph, bytes, 64, &memo).Frontier();
  };
  const auto* first = plan(g, 0);
  ASSERT_GT(first->size(), 1u);
  EXPECT_EQ(plan(g, 0), first);
  EXPECT_NE(plan(other, 0), first);
  EXPECT_NE(plan(g, 64), first);
  EXPECT_EQ(plan(g, 0), first);
  EXPECT_EQ(RecomputePlanner(g, NoWorkspace(g), 64).Frontier().size(), first->size());
}

// Clones are inserted before fusion, where they mostly fuse as planned or better; else the planned graph is as small as
// planned. All give the same bits.
void CheckFusionOfClones(int threads, uint32_t seeds) {
  auto backend = CreateBackend("cpu", {.threads = threads});
  ASSERT_TRUE(backend.ok()) << backend.status();
  constexpr double kPlacement = 1.02;  // an arena over the live bytes at its peak, at most
  int with_clones = 0, fused_worse = 0;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const Graph legal = (*backend)->Legalize(RandomJoint(40, seed)).value();
    const FusedGraph fused = (*backend)->Fuse(legal).value();
    EXPECT_LT(fused.graph.nodes().size(), legal.nodes().size());
    const RecomputePlanner planner(fused.graph, (*backend)->Workspaces(fused.graph).value(), 64);
    const auto run = [&](const Graph& graph, MemoryUse* memory) {
      BoundProgram program = BoundProgram::Make(**backend, graph).value();
      *memory = program.program().memory();
      std::mt19937 random(seed);
      for (const GraphInput& input : graph.inputs()) {
        HostTensor value(graph.type(input.value));
        for (int64_t i = 0; i < value.size(); ++i) value.Set(i, std::uniform_real_distribution<>(-0.1, 0.1)(random));
        EXPECT_TRUE(program.Set(input.name, value).ok());
      }
      EXPECT_TRUE(program.Run().ok());
      std::vector<std::byte> outputs;
      for (const GraphOutput& output : graph.outputs()) {
        const HostTensor value = program.Get(output.name).value();
        outputs.insert(outputs.end(), value.bytes().begin(), value.bytes().end());
      }
      return outputs;
    };
    MemoryUse kept, memory;
    const auto want = run(legal, &kept);
    for (const RecomputePlan& plan : planner.Frontier()) {
      EXPECT_TRUE(run(ApplyRecompute(legal, fused, planner, plan.recomputed), &memory) == want) << seed;
      if (memory.lower_bound > plan.lower_bound) {
        EXPECT_TRUE(run(planner.PlannedGraph(plan), &memory) == want) << seed;
        ++fused_worse;
      }
      EXPECT_LE(memory.lower_bound, plan.lower_bound) << seed << ": " << plan.repeated << " nodes are recomputed";
      EXPECT_LE(memory.arena, kPlacement * static_cast<double>(plan.lower_bound)) << seed;
      if (plan.repeated == 0) continue;
      EXPECT_LT(memory.arena, kept.arena) << seed;
      ++with_clones;
    }
  }
  EXPECT_GE(with_clones, 8);
  EXPECT_LE(fused_worse, with_clones / 10);
}

// Workspaces depend on the threads.
TEST(Recompute, ClonesFuseLikeTheirOriginals) {
  CheckFusionOfClones(1, 24);
  CheckFusionOfClones(2, 11);
}

// The list may begin with nodes that are made of the gradient's seed alone: the forward pass is the same.
TEST(Recompute, SeedsMayComeFirst) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const Graph g = RandomJoint(20, seed);
    std::vector<bool> of_seed(g.nodes().size(), false);
    std::vector<int32_t> order, others;
    for (int32_t n = 0; n < std::ssize(g.nodes()); ++n) {
      const auto is_seed = [&](ValueId v) {
        return g.IsInput(v) ? g.FindInput(kInverseDenominatorFeed)->value == v : of_seed[g.value(v).node];
      };
      of_seed[n] = !IsConstant(g.nodes()[n]) && std::ranges::all_of(g.nodes()[n].inputs, is_seed);
      (of_seed[n] || IsConstant(g.nodes()[n]) ? order : others).push_back(n);
    }
    ASSERT_GT(std::ranges::count(of_seed, true), 0);
    order.insert(order.end(), others.begin(), others.end());
    const Graph moved = ReorderNodes(g, order);
    const RecomputePlanner planner(g, NoWorkspace(g), 64), other(moved, NoWorkspace(g), 64);
    EXPECT_EQ(other.boundary(), planner.boundary());
    EXPECT_EQ(other.Frontier().back().arena, planner.Frontier().back().arena);
    EXPECT_LT(other.Frontier().back().arena, other.Frontier().front().arena);
  }
}

// Outputs that serve no gradient, such as the best classes of a block of logits, are computed while their operands
// live.
TEST(Recompute, OutputsOfBlocksDoNotKeepThem) {
  constexpr int64_t kBlocks = 8, kRows = 64, kClasses = 512;
  Graph g;
  Builder b(&g);
  const Val x = Tanh(b.Input(InputKind::kFeed, "x", {DType::kFloat32, {kRows, 32}}));
  const Val inverse = b.Input(InputKind::kFeed, kInverseDenominatorFeed, {DType::kFloat32, {}});
  for (int64_t i = 0; i < kBlocks; ++i) {
    const Val w = b.Input(InputKind::kParameter, StrCat("w", i), {DType::kFloat32, {32, kClasses}});
    const Val logits = MatMul(x, w), gradient = logits * inverse;
    g.AddOutput(StrCat("grad", i), MatMul(x, gradient, true, false).id());
    g.AddOutput(StrCat("best", i), b.Op("ArgMax", {logits}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}).id());
  }
  ASSERT_TRUE(b.status().ok()) << b.status();
  const RecomputePlanner planner(g, NoWorkspace(g), 64);
  RecomputeTrace trace;
  planner.Model().Simulate(RecomputeSchedule(planner.Model().graph().nodes().size()), &trace);
  EXPECT_LT(trace.peak, 3 * kRows * kClasses * 4);
}

TEST(Recompute, FiveThousandNodesInThreeSeconds) {
  const Graph g = RandomJoint(1100, 11);
  EXPECT_GT(g.nodes().size(), 5000u);
  const auto begin = std::clock();
  const auto plans = RecomputePlanner(g, NoWorkspace(g), 64).Frontier();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_GT(plans.size(), 4u);
  RecordProperty("nodes", static_cast<int>(g.nodes().size()));
  std::printf("%zu nodes planned in %.2f s, %zu plans\n", g.nodes().size(), seconds, plans.size());
#ifdef NDEBUG
  EXPECT_LE(seconds, 6);  // twice what an idle machine may take
#endif
}

TEST(BatchSize, LargestThatFits) {
  int asked = 0;
  const auto peak = [&](int64_t size) -> absl::StatusOr<int64_t> {
    ++asked;
    return 1000 + 37 * size + (size % 3);
  };
  for (int64_t limit : {1000, 1037, 1040, 5000, 100'000, 5'000'000}) {
    asked = 0;
    const auto size = LargestFitting(peak, limit, 4000);
    ASSERT_TRUE(size.ok());
    int64_t expected = 0;
    for (int64_t s = 1; s <= 4000; ++s) expected = 1000 + 37 * s + s % 3 <= limit ? s : expected;
    EXPECT_EQ(*size, expected) << limit;
    EXPECT_LE(asked, 14) << limit;
  }
  const auto bad = LargestFitting([](int64_t) -> absl::StatusOr<int64_t> { return absl::InternalError("x"); }, 10, 10);
  EXPECT_FALSE(bad.ok());
}

}  // namespace
}  // namespace onnxtrain
