// Chooses which values of the forward pass are kept for the backward pass and which are recomputed there.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/memory/cost_model.h"

namespace onnxtrain {

enum class RecomputeMode : uint8_t {
  kNone,    // keeps everything
  kAuto,    // the fastest plan that fits the free memory
  kSqrt,    // √n segments, keeps only the values at their borders (Chen et al., 1604.06174)
  kAll,     // recomputes everything that is cheap
  kBudget,  // as kAuto, within a given budget
};

struct RecomputeSpec {
  RecomputeMode mode = RecomputeMode::kAuto;
  int64_t memory_budget = 0;  // bytes for everything that a session holds; 0: the free memory of the device
  int64_t reserved = 0;       // of the budget, for programs compiled after the largest one (Session::Plan)
  bool offload = false;       // keeps activations in a file where recomputation does not suffice (Backend::Offloads)
};

// One way to run a training graph.
struct RecomputePlan {
  RecomputeSchedule recomputed;  // by node of RecomputePlanner::Model().graph()
  size_t arena = 0;              // bytes, planned with offsets
  size_t lower_bound = 0;
  int64_t repeated = 0;      // number of recomputed nodes
  double seconds = 0;        // time of one run, by the cost model
  double extra_seconds = 0;  // the part of it spent on recomputation
};

// Plans from the fastest to the smallest.
using RecomputePlans = std::shared_ptr<const std::vector<RecomputePlan>>;

// Keeps the frontiers of the last few graphs. Plans of one model meet the same graphs many times: for several budgets,
// and on several rungs of the memory ladder. Thread-compatible: one thread at a time.
class RecomputeMemo {
 public:
  // Returns the frontier of a graph whose nodes need these workspaces; `make` makes it if it is not known.
  RecomputePlans Get(const Graph& graph, const std::vector<size_t>& workspace,
                     const std::function<RecomputePlans()>& make);
  void Clear() { entries_.clear(); }

 private:
  struct Entry {
    Graph graph;
    std::vector<size_t> workspace;
    RecomputePlans plans;
  };
  std::list<Entry> entries_;  // the most recently used first
};

// Plans for the kernels of a graph (Backend::Fuse) whose backward pass begins with users of the feeds
// kInverseDenominatorFeed.
class RecomputePlanner {
 public:
  // `workspace`: Backend::Workspaces of the graph. `alignment`: of the device's arenas. `memo` (may be null) outlives
  // the planner.
  RecomputePlanner(const Graph& graph, const std::vector<size_t>& workspace, size_t alignment,
                   RecomputeMemo* memo = nullptr);

  // Returns true if the graph has a backward pass.
  bool Applies() const;
  // Returns the plan of kNone, kSqrt or kAll.
  RecomputePlan Plan(RecomputeMode mode) const;
  // Returns the Pareto frontier of memory and time, from the fastest plan to the smallest. It is the same for every
  // budget, so that a larger budget never means a slower plan. Planned at the first call.
  const std::vector<RecomputePlan>& Frontier() const;
  // Returns the graph of a plan, of kernels as the planner's.
  Graph PlannedGraph(const RecomputePlan& plan) const;
  // Returns, by node of the model, its index in the given graph. Dead nodes are left out.
  const std::vector<int32_t>& order() const { return order_; }
  int32_t boundary() const { return boundary_; }
  // The model refers to the planner.
  RecomputeCostModel Model() const { return RecomputeCostModel(graph_, {boundary_, workspace_, seconds_}); }

 private:
  RecomputePlan MakePlan(RecomputeSchedule recomputed) const;
  std::vector<RecomputePlan> MakeFrontier() const;

  const size_t alignment_;
  RecomputeMemo* const memo_;
  std::vector<int32_t> order_;     // by node: its index in the given graph
  Graph graph_;                    // the backward pass is in the order with the smallest memory
  std::vector<size_t> workspace_;  // by node
  int32_t boundary_;
  std::vector<double> seconds_;  // by node: time to recompute it
  mutable RecomputePlans frontier_;
};

// Returns the fastest plan of the mode with an arena of at most `limit` bytes. If none fits, returns kResourceExhausted
// and sets *smallest to the smallest sufficient arena.
absl::StatusOr<RecomputePlan> ChooseRecompute(const RecomputePlanner& planner, RecomputeMode mode, size_t limit,
                                              size_t* smallest);

// Returns the legalized graph with the clones of `recomputed` (by node of the planner's model). The planner must be
// made from fused.graph. All nodes of a kernel are cloned together, for the same users, so that a clone can fuse like
// its original. The result has the list order of the planner.
Graph ApplyRecompute(const Graph& legal, const FusedGraph& fused, const RecomputePlanner& planner,
                     const RecomputeSchedule& recomputed);

// Keeps fewer bytes of the forward pass for the backward pass where that costs no kernel: a value whose readers in the
// backward pass are elementwise operators is computed there again, in the kernels that read it, if what it is computed
// from is kept anyhow or is smaller. x·σ(x)·u of a gated layer keeps x and u alone.
//
// Chooses by a minimum cut: moved bytes of what is kept against the operations of what is repeated, by the cost model
// of optim/step/program/optimize.h. For legalized graphs of backends that fuse chains of elementwise operators
// (Backend::FusesElementwise). What must run in the backward pass although it depends on no gradient reads results of
// chains through a Reshape to the same shape, with which no backend fuses it. Clones have the bits of their originals.
// Returns a graph without a backward pass unchanged.
Graph RecomputeElementwise(const Graph& legal);

}  // namespace onnxtrain
