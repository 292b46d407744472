// Which values of the forward pass are kept for the backward pass, and which are computed again there.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/recompute_model.h"

namespace onnxtrain {

enum class RecomputeMode : uint8_t {
  kNone,    // everything is kept
  kAuto,    // the fastest plan that fits the memory
  kSqrt,    // √n segments, of which only the borders are kept (Chen et al., 1604.06174)
  kAll,     // whatever is cheap to compute
  kBudget,  // as kAuto, for a budget that was given
};

struct RecomputeSpec {
  RecomputeMode mode = RecomputeMode::kAuto;
  int64_t memory_budget = 0;  // bytes for everything that a session holds; 0: what the device has left
};

// One way to run a training graph.
struct RecomputePlan {
  Graph graph;
  Again again;               // by node of RecomputePlanner::Model().graph()
  size_t arena = 0;          // bytes, planned with real offsets
  size_t lower_bound = 0;
  int64_t repeated = 0;      // nodes that run a second time
  double seconds = 0;        // of one run, by the cost model
  double extra_seconds = 0;  // of that, spent on nodes that run a second time
};

// Of a legalized graph whose backward pass begins with readers of the feeds kInvWeightFeed.
class RecomputePlanner {
 public:
  // `workspace`: Backend::Workspaces of the graph. `alignment`: of the device's arenas.
  RecomputePlanner(const Graph& graph, const std::vector<size_t>& workspace, size_t alignment);

  // Has the graph a backward pass?
  bool Applies() const;
  // kNone, kSqrt, kAll.
  RecomputePlan Plan(RecomputeMode mode) const;
  // The plans that no other found beats in both memory and time, from the fastest to the smallest: the same for every
  // budget, so that a larger budget never means a slower plan.
  std::vector<RecomputePlan> Frontier() const;
  // Refers to the planner.
  RecomputeModel Model() const { return RecomputeModel(graph_, {boundary_, workspace_, seconds_}); }

 private:
  RecomputePlan Judge(Again again) const;

  const size_t alignment_;
  Graph graph_;                    // the backward pass in the order in which it needs least memory
  std::vector<size_t> workspace_;  // by node
  int32_t boundary_;
  std::vector<double> seconds_;  // by node: of running it again
};

// The plan of the mode for an arena of at most `limit` bytes. Where none fits: kResourceExhausted, and *smallest is the
// smallest arena that would do.
absl::StatusOr<RecomputePlan> ChooseRecompute(const RecomputePlanner& planner, RecomputeMode mode, size_t limit, size_t* smallest);

}  // namespace onnxtrain
