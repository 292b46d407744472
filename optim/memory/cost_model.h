// Cost model of rematerialization: live ranges, peak memory and time of a training graph under any schedule. A
// simulation takes microseconds. It runs in list order, with buffer reuse and workspaces as in backends/memory_plan.h,
// but without offsets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/dataflow.h"
#include "frontend/graph/graph.h"
#include "frontend/passes/rematerialize.h"

namespace onnxtrain {

struct RecomputeCosts {
  int32_t boundary = 0;           // the first node of the backward pass (passes/rematerialize.h)
  std::vector<size_t> workspace;  // bytes, by node
  std::vector<double> seconds;    // by node
};

// The clones of each node in the backward pass, by node. Only candidates have any.
using RecomputeSchedule = std::vector<Clones>;

// Returns, by node, the node with which it is cloned: mostly itself. A value of weights alone (packed weights) with one
// user in the forward pass is recomputed with that user.
std::vector<int32_t> FindCloneOwners(const Graph& graph, int32_t boundary);

// A simulated run of the graph.
struct RecomputeTrace {
  struct Run {
    int32_t node;
    int32_t backward;  // the backward node that it is or is recomputed for; −1 in the forward pass

    bool clone() const { return backward >= 0 && backward != node; }
  };
  // The live range of a result of a node or of one of its clones.
  struct LiveRange {
    ValueId root;
    int32_t first, last;        // steps
    int32_t last_forward_read;  // the last forward step that reads or produces it; −1: none
    int32_t before;             // the previous live range of the same root, or −1
    bool clone;

    bool Covers(int32_t step) const { return first <= step && step <= last; }
  };
  std::vector<Run> runs;               // by step
  std::vector<int64_t> live;           // bytes, by step
  std::vector<LiveRange> live_ranges;  // by first step
  std::vector<int32_t> newest;         // by root: its last live range, or −1
  std::vector<int32_t> made;           // by step: its first in `live_ranges`; one extra at the end
  std::vector<int32_t> reads;          // indices into `live_ranges`, by step
  std::vector<int32_t> first_read;     // by step: its first in `reads`; one extra at the end
  int32_t backward = 0;                // the first step of the backward pass
  int64_t peak = 0;
  int32_t peak_step = 0;
  double extra_seconds = 0;  // of recomputation

  // Returns the first step that runs this backward node or a later one.
  int32_t FindStep(int32_t backward) const;
  // Returns the bytes above the target, summed over steps.
  double Excess(int64_t target) const;
};

class RecomputeCostModel {
 public:
  // The graph must outlive the model.
  RecomputeCostModel(const Graph& graph, RecomputeCosts costs);

  const Graph& graph() const { return flow_.graph[0]; }
  int32_t boundary() const { return costs_.boundary; }
  double seconds(int32_t node) const { return costs_.seconds[node]; }
  double total_seconds() const { return total_seconds_; }
  size_t size() const { return size_; }  // nodes and their operands and results: the cost of a simulation

  // Returns the forward nodes whose results can be recomputed, in list order.
  const std::vector<int32_t>& candidates() const { return candidates_; }
  // Return the results and operands in the arena, as roots (Dataflow), each once.
  const std::vector<ValueId>& results(int32_t node) const { return units_[node].results; }
  const std::vector<ValueId>& operands(int32_t node) const { return units_[node].operands; }
  int64_t bytes(ValueId root) const { return bytes_[root]; }
  int32_t producer(ValueId root) const { return graph().value(root).node; }
  bool IsSide(ValueId root) const { return side_[root]; }  // IsSideOutput
  bool IsReadByBackward(int32_t node) const { return units_[node].read_by_backward; }

  void Simulate(const RecomputeSchedule& recomputed, RecomputeTrace* trace) const;

  // Purposes of live bytes, for plots.
  enum Kind { kForward, kSaved, kRecomputed, kBackward, kWorkspace, kKinds };
  using KindBytes = std::array<int64_t, kKinds>;
  // Returns the live bytes by purpose, by step of a simulated trace.
  std::vector<KindBytes> SplitByKind(const RecomputeTrace& trace) const;

 private:
  struct Unit {
    bool runs = false;  // not a constant, a view, or dead
    bool read_by_backward = false, output = false;
    std::vector<ValueId> operands, results;
  };

  void MakeUnits();
  void MarkBackwardReaders();
  struct BackwardRuns;
  BackwardRuns MakeBackwardRuns(const RecomputeSchedule& recomputed) const;
  void MakeRuns(const BackwardRuns& backward, RecomputeTrace* t) const;
  void ComputeLiveRanges(const RecomputeSchedule& recomputed, RecomputeTrace* t) const;
  void ComputeLiveBytes(RecomputeTrace* t) const;
  template <typename F>
  void ForEachLiveRange(const RecomputeTrace& t, F f) const;
  // Returns the clone of the node that serves a reader in the backward pass; 0: the original.
  size_t At(const RecomputeSchedule& recomputed, int32_t node, int32_t backward) const {
    return recomputed[clone_owner_[node]].At(backward);
  }
  // Like At, by the value that is read; the originals of side outputs serve all readers.
  size_t CloneIndexForOperand(const RecomputeSchedule& recomputed, ValueId root, int32_t backward) const {
    return producer(root) < costs_.boundary && !side_[root] ? At(recomputed, producer(root), backward) : 0;
  }
  bool CanReuseOperand(const RecomputeTrace& t, int32_t step, ValueId out) const;

  const Dataflow flow_;
  const RecomputeCosts costs_;
  const std::vector<int32_t> clone_owner_;  // FindCloneOwners
  std::vector<Unit> units_;                 // by node
  std::vector<int64_t> bytes_;              // by root; 0 outside the arena
  std::vector<bool> side_;                  // by root
  std::vector<int32_t> candidates_;
  double total_seconds_ = 0;
  size_t size_ = 0;
};

}  // namespace onnxtrain
