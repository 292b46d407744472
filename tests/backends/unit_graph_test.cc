// Units of nodes: merged exactly where no cycle arises, in little time.
#include "backends/unit_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace onnxtrain {
namespace {

const Type kType = {DType::kFloat32, {4}};

ValueId Add(Graph* g, ValueIds inputs) { return g->AddNode("Sum", std::move(inputs), {}, {kType}).outputs[0]; }

// Nodes that read two of the values among the `reach` before them.
Graph RandomGraph(int nodes, int reach, uint32_t seed) {
  std::mt19937 random(seed);
  Graph g;
  std::vector<ValueId> values = {g.AddInput(InputKind::kFeed, "x", kType)};
  for (int i = 0; i < nodes; ++i) {
    const auto draw = [&] { return values[values.size() - 1 - random() % std::min<size_t>(values.size(), reach)]; };
    values.push_back(Add(&g, {draw(), draw()}));
  }
  return g;
}

// The units in the order that a topological sort finds; fewer than there are where they form a cycle.
size_t CountSorted(const Pattern& pattern, const std::vector<int32_t>& unit) {
  const Graph& g = pattern.graph();
  std::vector<std::vector<int32_t>> next(unit.size());
  std::vector<int> missing(unit.size(), 0);
  for (size_t n = 0; n < unit.size(); ++n) {
    for (int32_t user : pattern.users(g.nodes()[n].outputs[0])) {
      if (unit[user] == unit[n]) continue;
      next[unit[n]].push_back(unit[user]);
      ++missing[unit[user]];
    }
  }
  std::vector<int32_t> sorted;
  for (size_t n = 0; n < unit.size(); ++n) {
    if (unit[n] == static_cast<int32_t>(n) && missing[n] == 0) sorted.push_back(unit[n]);
  }
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (int32_t to : next[sorted[i]]) {
      if (--missing[to] == 0) sorted.push_back(to);
    }
  }
  return sorted.size();
}

bool IsAcyclic(const Pattern& pattern, const std::vector<int32_t>& unit) {
  size_t units = 0;
  for (size_t n = 0; n < unit.size(); ++n) units += unit[n] == static_cast<int32_t>(n);
  return CountSorted(pattern, unit) == units;
}

TEST(UnitGraphTest, MergesExactlyWhereNoCycleArises) {
  size_t merged = 0, refused = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const Graph g = RandomGraph(40, seed % 2 == 0 ? 40 : 6, seed);
    const Pattern pattern(g);
    UnitGraph units(pattern);
    std::mt19937 random(seed);
    std::vector<int32_t> unit(g.nodes().size());
    for (int tries = 0; tries < 200; ++tries) {
      std::vector<int32_t> chosen;
      for (size_t i = 0, count = 2 + random() % 2; i < count; ++i) {
        const int32_t u = units.unit(static_cast<int32_t>(random() % unit.size()));
        if (std::ranges::find(chosen, u) == chosen.end()) chosen.push_back(u);
      }
      if (chosen.size() < 2) continue;
      for (size_t n = 0; n < unit.size(); ++n) {
        const int32_t u = units.unit(static_cast<int32_t>(n));
        unit[n] = std::ranges::find(chosen, u) == chosen.end() ? u : chosen[0];
      }
      const bool possible = IsAcyclic(pattern, unit);
      ASSERT_EQ(units.TryMerge(chosen), possible) << "seed " << seed;
      (possible ? merged : refused) += 1;
      for (size_t n = 0; possible && n < unit.size(); ++n) {
        EXPECT_EQ(units.unit(static_cast<int32_t>(n)), unit[n]);
        EXPECT_EQ(std::ranges::count(units.members(unit[n]), static_cast<int32_t>(n)), 1);
      }
    }
  }
  EXPECT_GT(merged, 300u);
  EXPECT_GT(refused, 300u);
}

// A long chain, and behind it a chain back that reads its values: what a backward pass looks like.
// Node 0 is merged with node 3. Its reader, node 1, keeps its place before node 2.
TEST(UnitGraphTest, RunsAUnitWhereItsFirstReaderIsDue) {
  Graph g;
  const ValueId x = g.AddInput(InputKind::kFeed, "x", kType);
  const ValueId first = Add(&g, {x});
  Add(&g, {first});
  Add(&g, {x});
  Add(&g, {x});
  const Pattern pattern(g);
  UnitGraph units(pattern);
  const std::vector<int32_t> merged = {0, 3};
  ASSERT_TRUE(units.TryMerge(merged));
  const std::vector<int32_t> order = units.Order();
  ASSERT_EQ(order.size(), 3u);
  EXPECT_EQ(order[0], units.unit(0));
  EXPECT_EQ(order[1], units.unit(1));
  EXPECT_EQ(order[2], units.unit(2));
}

TEST(UnitGraphTest, SearchesLittleInALongChainWithGradients) {
  Graph g;
  std::vector<ValueId> forward = {g.AddInput(InputKind::kFeed, "x", kType)};
  constexpr int kLength = 20'000;
  for (int i = 0; i < kLength; ++i) forward.push_back(Add(&g, {forward.back()}));
  ValueId gradient = forward.back();
  for (int i = kLength; i > 0; --i) gradient = Add(&g, {gradient, Add(&g, {forward[i], forward[i]})});
  const Pattern pattern(g);
  UnitGraph units(pattern);
  int merged = 0;
  for (int32_t n = 0; n < std::ssize(g.nodes()); ++n) {
    for (ValueId v : g.nodes()[n].inputs) {
      const int32_t from = g.IsInput(v) ? units.unit(n) : units.unit(g.value(v).node);
      const bool small = units.members(from).size() + units.members(units.unit(n)).size() <= 24;
      if (from != units.unit(n) && small) merged += units.TryMerge({{from, units.unit(n)}});
    }
  }
  EXPECT_GT(merged, 2 * kLength);
  EXPECT_LT(units.visited_edges(), 100 * std::ssize(g.nodes()));
}

// A search that would take too long refuses.
TEST(UnitGraphTest, GivesUpOnALongSearch) {
  const Graph g = RandomGraph(50'000, 50'000, 3);
  const Pattern pattern(g);
  UnitGraph units(pattern);
  std::mt19937 random(4);
  constexpr int64_t kTries = 300;
  for (int64_t i = 0; i < kTries; ++i) {
    const int32_t a = units.unit(static_cast<int32_t>(random() % 50'000));
    const int32_t b = units.unit(static_cast<int32_t>(random() % 50'000));
    if (a != b) units.TryMerge({{a, b}});
  }
  EXPECT_LT(units.visited_edges(), 3 * kTries * UnitGraph::kMaxSearch);
}

}  // namespace
}  // namespace onnxtrain
