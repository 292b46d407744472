#include "backends/memory_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "backends/arena_packing.h"
#include "backends/output_notices.h"
#include "frontend/base/strings.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Operators over i64 whose result tells exactly which inputs were read:
// Map is elementwise (1..3 inputs, as many outputs as it says), Mix depends on every element of every input, and so
// does Over, which reads all of them before it writes its first output, and its first input along with that.
void RegisterTestOps() {
  static const OpRow rows[] = {
      {.name = "test.Map", .inputs = {1, 3}, .outputs = kOutputsFromAttr, .elementwise = true},
      {.name = "test.Mix", .inputs = {1, 3}, .outputs = kOutputsFromAttr},
      {.name = "test.Over", .inputs = {1, 3}, .outputs = kOutputsFromAttr, .overwrites = kAnyInput},
      {.name = "test.View", .view = true},
  };
  RegisterOps(rows);
}

using Words = std::vector<uint64_t>;

uint64_t Hash(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2);
  return a * 0xff51afd7ed558ccd ^ (a >> 33);
}

uint64_t MapElement(int32_t node, size_t output, size_t i, const std::vector<const uint64_t*>& in, const Words& sizes) {
  uint64_t h = Hash(node, output);
  for (size_t k = 0; k < in.size(); ++k) h = Hash(h, in[k][sizes[k] == 1 ? 0 : i]);
  return h;
}

uint64_t HashAll(uint64_t h, const std::vector<const uint64_t*>& in, const Words& sizes) {
  for (size_t k = 0; k < in.size(); ++k) {
    for (size_t i = 0; i < sizes[k]; ++i) h = Hash(h, in[k][i]);
  }
  return h;
}

// Runs one node on memory. Where outputs must not overlap inputs they are spoiled first.
void RunNode(const Graph& graph, int32_t n, const std::vector<const uint64_t*>& in, const std::vector<uint64_t*>& out) {
  const Node& node = graph.nodes()[n];
  Words sizes;
  for (ValueId v : node.inputs) sizes.push_back(graph.type(v).elements());
  const size_t size = graph.type(node.outputs[0]).elements();
  if (node.op == "test.Map") {
    for (size_t i = 0; i < size; ++i) {
      Words results;
      for (size_t o = 0; o < out.size(); ++o) results.push_back(MapElement(n, o, i, in, sizes));
      for (size_t o = 0; o < out.size(); ++o) out[o][i] = results[o];
    }
  } else if (node.op == "test.Mix") {
    for (uint64_t* o : out) std::fill_n(o, size, 0xdeadbeef);
    const uint64_t h = HashAll(n, in, sizes);
    for (size_t o = 0; o < out.size(); ++o) {
      for (size_t i = 0; i < size; ++i) out[o][i] = Hash(h, o * 1000003 + i);
    }
  } else if (node.op == "test.Over") {
    for (size_t o = 1; o < out.size(); ++o) std::fill_n(out[o], size, 0xdeadbeef);
    const uint64_t h = HashAll(n, in, sizes);
    for (size_t o = 1; o < out.size(); ++o) std::fill_n(out[o], size, Hash(h, o));
    for (size_t i = 0; i < size; ++i) out[0][i] = Hash(h, in[0][i]);
  } else if (out[0] != in[0]) {
    std::copy_n(in[0], size, out[0]);
  }
}

Words InputContent(const Graph& graph, size_t i) {
  Words words(graph.type(graph.inputs()[i].value).elements());
  for (size_t k = 0; k < words.size(); ++k) words[k] = Hash(i + 77, k);
  return words;
}

// What every value should be.
std::vector<Words> Reference(const Graph& graph) {
  std::vector<Words> values(graph.values().size());
  for (size_t i = 0; i < graph.inputs().size(); ++i) values[graph.inputs()[i].value] = InputContent(graph, i);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    std::vector<const uint64_t*> in;
    std::vector<uint64_t*> out;
    for (ValueId v : node.outputs) values[v].resize(graph.type(v).elements());
    for (ValueId v : node.inputs) in.push_back(values[v].data());
    for (ValueId v : node.outputs) out.push_back(values[v].data());
    if (node.op == "Constant") {
      const auto data = node.attrs.Tensor("value")->data<uint64_t>();
      values[node.outputs[0]].assign(data.begin(), data.end());
    } else {
      RunNode(graph, static_cast<int32_t>(n), in, out);
    }
  }
  return values;
}

// A machine that has only the memory of the plan.
class Machine {
 public:
  Machine(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options)
      : graph_(graph),
        plan_(plan),
        options_(options),
        arena_(plan.arena_bytes / 8, 0xabad1dea),
        area_(plan.offload_area / 8, 0xabad1dea),
        file_(plan.offload_area / 8, 0xabad1dea) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) inputs_.push_back(InputContent(graph, i));
    for (const auto& o : graph.outputs()) outputs_.emplace_back(graph.type(o.value).elements(), 0xabad1dea);
  }

  // `after_nodes` is called with how many nodes have run; kAfterCopies: all, and the copies.
  template <typename F>
  void Run(F after_nodes) {
    size_t nodes = 0;
    for (int32_t n : plan_.order) {
      after_nodes(nodes++);
      std::vector<const uint64_t*> in;
      std::vector<uint64_t*> out;
      for (ValueId v : graph_.nodes()[n].inputs) in.push_back(At(plan_.places[v]));
      for (ValueId v : graph_.nodes()[n].outputs) out.push_back(At(plan_.places[v]));
      SpoilWorkspace(n);
      Load(nodes - 1);
      RunNode(graph_, n, in, out);
      Store(nodes - 1);
      SpoilWorkspace(n);
    }
    Load(nodes);
    after_nodes(nodes);
    for (const Copy& copy : plan_.copies) std::memcpy(At(copy.to), At(copy.from), copy.bytes);
    after_nodes(kAfterCopies);
  }

  const uint64_t* At(const Place& place) const { return const_cast<Machine*>(this)->At(place); }
  uint64_t* At(const Place& place) {
    switch (place.where) {
      case Place::Where::kArena:
        return arena_.data() + place.offset / 8;
      case Place::Where::kOffloaded:
        return area_.data() + place.offset / 8;
      case Place::Where::kInput:
        return inputs_[place.index].data();
      case Place::Where::kOutput:
        return outputs_[place.index].data();
      case Place::Where::kConstant:
        return const_cast<uint64_t*>(graph_.FindConstant(place.index)->data<uint64_t>().data());
      case Place::Where::kNone:
        return nullptr;
    }
    return nullptr;
  }
  // The memory that an output is bound to.
  Words& bound(size_t o) {
    const ValueId into = graph_.outputs()[o].into;
    return into == kNoValue ? outputs_[o] : inputs_[graph_.value(into).index];
  }
  const Words& input(size_t i) const { return inputs_[i]; }
  const Words& output(size_t o) const { return outputs_[o]; }

 private:
  void SpoilWorkspace(int32_t n) {
    if (options_.workspace_bytes.empty()) return;
    EXPECT_LE(plan_.workspace_offset[n] + options_.workspace_bytes[n], plan_.arena_bytes);
    std::memset(arena_.data() + plan_.workspace_offset[n] / 8, 0x5a, options_.workspace_bytes[n]);
  }

  // Values are in the area from their first step to `store`, and from `load` to their last step.
  void Load(size_t step) {
    size_t resident = 0;
    for (const Offload& o : plan_.offloads) {
      if (static_cast<size_t>(o.load) == step) std::copy_n(&file_[o.offset / 8], o.bytes / 8, &area_[o.offset / 8]);
      const auto at = static_cast<int32_t>(step);
      const bool here = (o.first <= at && at <= o.store) || (o.load <= at && at <= o.last);
      resident += here ? (o.bytes + 4095) / 4096 * 4096 : 0;
    }
    EXPECT_LE(resident, plan_.offload_resident);
  }
  void Store(size_t step) {
    for (const Offload& o : plan_.offloads) {
      const auto at = static_cast<int32_t>(step);
      if (o.store == at) std::copy_n(&area_[o.offset / 8], o.bytes / 8, &file_[o.offset / 8]);
      if (o.store == at || o.last == at) std::fill_n(&area_[o.offset / 8], o.bytes / 8, 0xabad1dea);
    }
  }

  const Graph& graph_;
  const MemoryPlan& plan_;
  const PlanOptions& options_;
  Words arena_, area_, file_;
  std::vector<Words> inputs_, outputs_;
};

// Once an output is complete, the run neither reads nor writes its memory.
void CheckNotices(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options,
                  const std::vector<Words>& expected) {
  constexpr uint64_t kSpoiled = 0x5901;
  std::vector<std::vector<size_t>> groups((graph.outputs().size() + 1) / 2);  // of two outputs, or one
  for (size_t o = 0; o < graph.outputs().size(); ++o) groups[o / 2].push_back(o);
  const auto notices = PlanNotices(graph, plan, groups);
  ASSERT_EQ(notices.size(), groups.size());
  auto next = notices.begin();
  Machine machine(graph, plan, options);
  machine.Run([&](size_t nodes) {
    for (; next != notices.end() && next->nodes <= nodes; ++next) {
      for (size_t o : groups[next->group]) {
        EXPECT_EQ(machine.bound(o), expected[graph.outputs()[o].value]) << "output " << o << " after " << nodes;
        std::ranges::fill(machine.bound(o), kSpoiled);
      }
    }
  });
  EXPECT_TRUE(next == notices.end());
  for (size_t o = 0; o < graph.outputs().size(); ++o)
    EXPECT_EQ(machine.bound(o), Words(machine.bound(o).size(), kSpoiled)) << "output " << o;
}

// Up to its first node, the memory of an output may have any contents.
void CheckOutputRanges(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options,
                       const std::vector<Words>& expected) {
  const std::vector<OutputRange> ranges = PlanOutputRanges(graph, plan);
  ASSERT_EQ(ranges.size(), graph.outputs().size());
  const auto is_apart = [&](size_t o) { return graph.outputs()[o].into == kNoValue; };
  Machine machine(graph, plan, options);
  machine.Run([&](size_t nodes) {
    for (size_t o = 0; o < ranges.size(); ++o) {
      if (is_apart(o) && nodes <= ranges[o].first) std::ranges::fill(machine.bound(o), 0x5902);
    }
  });
  for (size_t o = 0; o < ranges.size(); ++o) {
    EXPECT_LE(ranges[o].first, ranges[o].last);
    if (is_apart(o)) {
      EXPECT_EQ(machine.bound(o), expected[graph.outputs()[o].value]) << "output " << o;
    }
  }
}

// Plans, runs in the planned memory and compares everything that must have survived.
MemoryPlan CheckPlan(const Graph& graph, const PlanOptions& options = {}) {
  EXPECT_TRUE(VerifyStructure(graph).ok()) << VerifyStructure(graph).message();
  const MemoryPlan plan = PlanMemory(graph, options);
  EXPECT_GE(plan.arena_bytes + plan.offload_area, plan.lower_bound);
  Machine machine(graph, plan, options);
  machine.Run([](size_t) {});
  const auto expected = Reference(graph);
  CheckNotices(graph, plan, options, expected);
  CheckOutputRanges(graph, plan, options, expected);
  std::vector<bool> overwritten(graph.inputs().size(), false);
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    if (output.into == kNoValue) {
      EXPECT_EQ(machine.output(o), expected[output.value]) << "output " << o;
    } else {
      const int32_t i = graph.value(output.into).index;
      overwritten[i] = true;
      EXPECT_EQ(machine.input(i), expected[output.value]) << "output " << o << " into " << i;
    }
  }
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (overwritten[i]) continue;
    EXPECT_EQ(machine.input(i), InputContent(graph, i)) << "input " << i;
  }
  if (!options.reuse) {
    for (int32_t n : plan.order) {
      for (ValueId v : graph.nodes()[n].outputs) {
        EXPECT_TRUE(std::equal(expected[v].begin(), expected[v].end(), machine.At(plan.places[v]))) << "value " << v;
      }
    }
  }
  return plan;
}

Type I64(Shape shape) { return {DType::kInt64, std::move(shape)}; }

ValueId Add(Graph* graph, std::string op, ValueIds inputs, Shape shape, int outputs = 1) {
  return graph->AddNode(std::move(op), std::move(inputs), {}, std::vector<Type>(outputs, I64(std::move(shape))))
      .outputs[0];
}

Graph RandomGraph(std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const Shape shapes[] = {{16}, {4, 4}, {64}, {8, 8}, {1}, {256}};
  Graph graph;
  std::vector<ValueId> values;
  for (size_t i = 0, n = 1 + pick(5); i < n; ++i) {
    values.push_back(graph.AddInput(InputKind::kState, StrCat("in", i), I64(shapes[pick(6)])));
  }
  if (pick(2) == 0) {
    values.push_back(
        graph.AddNode("Constant", {}, {{"value", HostTensor::Filled(I64({16}), 5)}}, {I64({16})}).outputs[0]);
  }
  for (size_t i = 0, n = 1 + pick(40); i < n; ++i) {
    // Mostly recent values, so that others die.
    const auto any = [&] {
      return values[pick(3) == 0 ? pick(values.size()) : values.size() - 1 - pick(std::min<size_t>(values.size(), 4))];
    };
    const ValueId x = any();
    const Shape shape = graph.type(x).shape;
    const int64_t size = graph.type(x).elements();
    const size_t kind = pick(5);
    if (kind == 0) {
      values.push_back(Add(&graph, "test.View", {x}, shape.size() == 1 ? Shape{1, size} : Shape{size}));
      continue;
    }
    const bool map = kind < 3, over = kind == 4;
    ValueIds inputs = {x};
    for (size_t k = pick(3); k > 0; --k) {
      const ValueId y = any();
      if (!map || graph.type(y).shape == shape || graph.type(y).elements() == 1) inputs.push_back(y);
    }
    const int outputs = pick(4) == 0 ? 2 : 1;
    const ValueId y = Add(&graph,
                          map    ? "test.Map"
                          : over ? "test.Over"
                                 : "test.Mix",
                          inputs, map || over ? shape : shapes[pick(6)], outputs);
    for (int o = 0; o < outputs; ++o) values.push_back(y + o);
  }
  std::vector<bool> used(graph.inputs().size(), false);
  for (size_t o = 0, n = 1 + pick(6); o < n; ++o) {
    const ValueId value =
        pick(3) == 0 ? values[pick(values.size())] : values.back() - static_cast<ValueId>(pick(3) % values.size());
    ValueId into = kNoValue;
    for (size_t i = 0; i < used.size() && pick(3) != 0; ++i) {
      if (used[i] || graph.type(graph.inputs()[i].value) != graph.type(value)) continue;
      used[i] = true;
      into = graph.inputs()[i].value;
      break;
    }
    graph.AddOutput(StrCat("out", o), value, into);
  }
  return graph;
}

class MemoryPlanTest : public testing::Test {
 protected:
  void SetUp() override { RegisterTestOps(); }
};

TEST_F(MemoryPlanTest, RandomGraphsComputeTheRightThing) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    const Graph graph = RandomGraph(random);
    PlanOptions options;
    if (i % 3 == 0) {
      for (size_t n = 0; n < graph.nodes().size(); ++n) options.workspace_bytes.push_back(random() % 3 * 100);
    }
    options.reuse = i % 5 != 0;
    const MemoryPlan plan = CheckPlan(graph, options);
    options.offload = {.memory_limit = plan.arena_bytes / (1 + random() % 3), .least_bytes = 1};
    CheckPlan(graph, options);
    if (HasFailure()) ADD_FAILURE() << "graph " << i;
  }
}

TEST_F(MemoryPlanTest, IsDeterministic) {
  std::mt19937 random(9);
  for (int i = 0; i < 50; ++i) {
    const Graph graph = RandomGraph(random);
    const MemoryPlan a = PlanMemory(graph, {}), b = PlanMemory(graph, {});
    EXPECT_EQ(a.order, b.order);
    EXPECT_EQ(a.places, b.places);
    EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  }
}

TEST_F(MemoryPlanTest, ElementwiseChainNeedsNoArenaWhenItsEndIsAnOutput) {
  Graph g;
  ValueId x = g.AddInput(InputKind::kFeed, "x", I64({64}));
  for (int i = 0; i < 5; ++i) x = Add(&g, "test.Map", {x}, {64});
  g.AddOutput("y", x);
  EXPECT_EQ(CheckPlan(g).arena_bytes, 0);
}

TEST_F(MemoryPlanTest, UpdateWritesInPlaceAndRunsAfterOtherReaders) {
  Graph g;
  const ValueId p = g.AddInput(InputKind::kParameter, "p", I64({64}));
  const ValueId updated = Add(&g, "test.Map", {p}, {64});  // listed before the other reader
  const ValueId other = Add(&g, "test.Mix", {p}, {64});
  g.AddOutput("p_new", updated, p);
  g.AddOutput("other", other);
  const MemoryPlan plan = CheckPlan(g);
  EXPECT_EQ(plan.order, (std::vector<int32_t>{1, 0}));
  EXPECT_TRUE(plan.copies.empty());
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST_F(MemoryPlanTest, ReaderOfOldAndNewValueForcesACopy) {
  Graph g;
  const ValueId p = g.AddInput(InputKind::kParameter, "p", I64({64}));
  const ValueId updated = Add(&g, "test.Map", {p}, {64});
  g.AddOutput("difference", Add(&g, "test.Map", {p, updated}, {64}));
  g.AddOutput("p_new", updated, p);
  EXPECT_EQ(CheckPlan(g).copies.size(), 1);
}

TEST_F(MemoryPlanTest, OutputsAreCompleteOnceNothingReadsThem) {
  Graph g;
  const ValueId x = g.AddInput(InputKind::kFeed, "x", I64({64}));
  const ValueId read_again = Add(&g, "test.Mix", {x}, {64});
  const ValueId alone = Add(&g, "test.Mix", {read_again}, {64});
  const ValueId last = Add(&g, "test.Mix", {alone, read_again}, {64});
  g.AddOutput("last", last);
  g.AddOutput("read_again", read_again);
  g.AddOutput("alone", Add(&g, "test.Mix", {x}, {64}));
  g.AddOutput("copied", last);
  const MemoryPlan plan = CheckPlan(g);
  const std::vector<std::vector<size_t>> groups = {{0}, {1}, {2}, {3}};
  std::map<size_t, size_t> nodes;
  for (const OutputNotice& notice : PlanNotices(g, plan, groups)) nodes[notice.group] = notice.nodes;
  const auto position = [&](int32_t node) {
    return static_cast<size_t>(std::ranges::find(plan.order, node) - plan.order.begin());
  };
  EXPECT_EQ(nodes[0], kAfterCopies) << "it is copied from";
  EXPECT_EQ(nodes[1], position(2) + 1);
  EXPECT_EQ(nodes[2], position(3) + 1);
  EXPECT_EQ(nodes[3], kAfterCopies);
  const std::vector<OutputRange> ranges = PlanOutputRanges(g, plan);
  EXPECT_EQ(ranges[0].last, plan.order.size());
  EXPECT_EQ(ranges[1].first, position(0));
  EXPECT_EQ(ranges[1].last, position(2));
  EXPECT_EQ(ranges[2].first, position(3));
}

TEST_F(MemoryPlanTest, InputsCanBeExchanged) {
  Graph g;
  const ValueId a = g.AddInput(InputKind::kState, "a", I64({64}));
  const ValueId b = g.AddInput(InputKind::kState, "b", I64({64}));
  g.AddOutput("a_new", b, a);
  g.AddOutput("b_new", a, b);
  CheckPlan(g);
}

TEST_F(MemoryPlanTest, UpdatesRunAsSoonAsTheyCan) {
  // Ten gradients, each consumed by an update: the list computes all gradients first, the plan does not.
  Graph g;
  std::vector<ValueId> params, grads;
  const ValueId x = g.AddInput(InputKind::kFeed, "x", I64({1024}));
  for (int i = 0; i < 10; ++i) params.push_back(g.AddInput(InputKind::kParameter, StrCat("p", i), I64({1024})));
  for (int i = 0; i < 10; ++i) grads.push_back(Add(&g, "test.Mix", {i == 0 ? x : grads.back()}, {1024}));
  for (int i = 0; i < 10; ++i) {
    g.AddOutput(StrCat("new", i), Add(&g, "test.Map", {params[i], grads[i]}, {1024}), params[i]);
  }
  EXPECT_EQ(CheckPlan(g).arena_bytes, 2 * 1024 * 8);
}

TEST_F(MemoryPlanTest, WhatIsMadeOfInputsAloneComesRightBeforeItsReader) {
  // Ten packed weights, listed before the products that read them; each weight is overwritten by what its product
  // gives.
  Graph g;
  std::vector<ValueId> weights, packed;
  for (int i = 0; i < 10; ++i) weights.push_back(g.AddInput(InputKind::kParameter, StrCat("w", i), I64({1024})));
  for (ValueId w : weights) packed.push_back(Add(&g, "test.Mix", {Add(&g, "test.View", {w}, {32, 32})}, {1024}));
  ValueId x = g.AddInput(InputKind::kFeed, "x", I64({1024}));
  for (ValueId p : packed) x = Add(&g, "test.Mix", {x, p}, {1024});
  for (int i = 0; i < 10; ++i) g.AddOutput(StrCat("new", i), Add(&g, "test.Map", {weights[i], x}, {1024}), weights[i]);
  const MemoryPlan plan = CheckPlan(g);
  for (size_t step = 0; step < plan.order.size(); ++step) {
    const int32_t node = plan.order[step];
    if (std::find(packed.begin(), packed.end(), g.nodes()[node].outputs[0]) == packed.end()) continue;
    EXPECT_EQ(g.nodes()[plan.order[step + 1]].inputs.back(), g.nodes()[node].outputs[0]) << "step " << step;
  }
  EXPECT_EQ(plan.arena_bytes, 3 * 1024 * 8);  // what a product reads and writes
}

TEST_F(MemoryPlanTest, OffloadsWhatIsNotUsedForTheLongestTime) {
  // Ten results that a backward pass reads in the reverse order.
  constexpr size_t kBytes = size_t{64} << 10;
  Graph g;
  std::vector<ValueId> forward = {g.AddInput(InputKind::kFeed, "x", I64({kBytes / 8}))};
  for (int i = 0; i < 10; ++i) forward.push_back(Add(&g, "test.Mix", {forward.back()}, {kBytes / 8}));
  ValueId dy = forward.back();
  for (int i = 9; i > 0; --i) dy = Add(&g, "test.Mix", {dy, forward[i]}, {kBytes / 8});
  g.AddOutput("dx", dy);
  EXPECT_TRUE(CheckPlan(g).offloads.empty());
  const MemoryPlan some = CheckPlan(g, {.offload = {.memory_limit = 7 * kBytes}});
  EXPECT_LE(some.memory_bytes(), 7 * kBytes);
  const MemoryPlan least = CheckPlan(g, {.offload = {.memory_limit = 0}});
  EXPECT_LT(least.memory_bytes(), some.memory_bytes());
  EXPECT_LT(some.offloads.size(), least.offloads.size());
  const auto made_first = [&](const Offload& o) { return o.first == 0; };
  EXPECT_TRUE(std::ranges::any_of(some.offloads, made_first)) << "the first result is read last";
}

TEST_F(MemoryPlanTest, BigGraphIsPlannedCloseToItsBound) {
  std::mt19937 random(3);
  Graph g;
  std::vector<ValueId> forward = {g.AddInput(InputKind::kFeed, "x", I64({64}))};
  for (int i = 0; i < 1500; ++i) {
    const auto size = static_cast<int64_t>(8 << (random() % 8));
    forward.push_back(Add(&g, "test.Mix", {forward.back(), forward[random() % forward.size()]}, {size}));
  }
  ValueId dy = forward.back();
  for (int i = 1499; i > 0; --i) dy = Add(&g, "test.Mix", {dy, forward[i]}, {g.type(forward[i]).elements()});
  g.AddOutput("dx", dy);
  const MemoryPlan plan = CheckPlan(g);
  EXPECT_LE(plan.arena_bytes, 1.02 * plan.lower_bound);
}

TEST(PackTest, BlocksAliveTogetherDoNotOverlap) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<Block> blocks;
    for (int k = 0; k < 60; ++k) {
      const auto first = static_cast<int32_t>(random() % 50);
      blocks.push_back(
          {.bytes = 64 * (random() % 20), .first = first, .last = first + static_cast<int32_t>(random() % 20)});
    }
    const Packing packing = PackBlocks(blocks);
    for (size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_LE(packing.offsets[a] + blocks[a].bytes, packing.total);
      for (size_t b = 0; b < a; ++b) {
        const bool together = blocks[a].first <= blocks[b].last && blocks[b].first <= blocks[a].last;
        const bool overlap = packing.offsets[a] < packing.offsets[b] + blocks[b].bytes &&
                             packing.offsets[b] < packing.offsets[a] + blocks[a].bytes;
        EXPECT_FALSE(together && overlap && blocks[a].bytes > 0 && blocks[b].bytes > 0);
      }
    }
  }
}

void CheckOffsets(const std::vector<Block>& blocks, const Packing& packing) {
  // By step, the blocks that are live, by offset.
  std::vector<std::pair<int32_t, int32_t>> starts, ends;
  for (int32_t b = 0; b < std::ssize(blocks); ++b) {
    starts.emplace_back(blocks[b].first, b);
    ends.emplace_back(blocks[b].last, b);
    EXPECT_LE(packing.offsets[b] + blocks[b].bytes, packing.total);
  }
  std::sort(starts.begin(), starts.end());
  std::sort(ends.begin(), ends.end());
  std::map<size_t, size_t> live;  // offset → end
  auto ended = ends.begin();
  for (const auto& [first, b] : starts) {
    for (; ended->first < first; ++ended) live.erase(packing.offsets[ended->second]);
    const size_t begin = packing.offsets[b], end = begin + blocks[b].bytes;
    const auto next = live.lower_bound(begin);
    ASSERT_TRUE(next == live.end() || next->first >= end);
    ASSERT_TRUE(next == live.begin() || std::prev(next)->second <= begin);
    live[begin] = end;
  }
}

TEST(PackTest, NestedBlocksArePackedToTheBound) {
  constexpr int32_t kCount = 30'000;
  std::mt19937 random(6);
  std::vector<Block> blocks;
  for (int32_t i = 0; i < kCount; ++i)
    blocks.push_back({.bytes = 64 * (1 + random() % 50), .first = i, .last = 2 * kCount - i});
  const Packing packing = PackBlocks(blocks);
  CheckOffsets(blocks, packing);
  EXPECT_EQ(packing.total, PeakLiveBytes(blocks));
}

TEST(PackTest, ManyRandomBlocksArePackedCloseToTheBound) {
  std::mt19937 random(7);
  std::vector<Block> blocks;
  for (int32_t i = 0; i < 50'000; ++i) {
    const auto first = static_cast<int32_t>(random() % 20'000);
    const auto length = static_cast<int32_t>(random() % 100);
    blocks.push_back({.bytes = 64 * (1 + random() % 50), .first = first, .last = first + length});
  }
  const Packing packing = PackBlocks(blocks);
  CheckOffsets(blocks, packing);
  EXPECT_LE(packing.total, 1.2 * PeakLiveBytes(blocks));
}

}  // namespace
}  // namespace onnxtrain
