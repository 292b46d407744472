// A training graph as recomputation sees it: what is alive when, for any choice of what runs again. Simulated in microseconds,
// in list order, with takeovers and workspaces as the planner (backends/memory_plan.h) has them, but without offsets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/flow.h"
#include "frontend/graph/graph.h"
#include "frontend/passes/rematerialize.h"

namespace onnxtrain {

struct RecomputeCosts {
  int32_t boundary = 0;            // the first node of the backward pass: passes/rematerialize.h
  std::vector<size_t> workspace;   // bytes, by node
  std::vector<double> seconds;     // by node
};

// By node: when is it run again in the backward pass? Only candidates may be.
using Again = std::vector<Repeats>;

// By node: with which it runs again. Mostly itself; what is made of weights alone for one node before the boundary (packed weights)
// is never kept for a clone of that node, but made anew.
std::vector<int32_t> RepeatedWith(const Graph& graph, int32_t boundary);

// One run of the graph.
struct RecomputeTrace {
  struct Run {
    int32_t node;
    int32_t late;  // the node of the backward pass that it is or runs again for; −1 before

    bool clone() const { return late >= 0 && late != node; }
  };
  // A result of an original or of one of its clones.
  struct Life {
    ValueId root;
    int32_t first, last;  // steps
    int32_t last_early;   // the last step that reads it before the backward pass, or makes it; −1 where made later
    int32_t before;       // the life of the same root that began before it, or −1
    bool clone;

    bool Covers(int32_t step) const { return first <= step && step <= last; }
  };
  std::vector<Run> runs;               // by step
  std::vector<int64_t> live;           // bytes, by step
  std::vector<Life> lives;             // in the order in which they begin
  std::vector<int32_t> newest;         // by root: its last life, or −1
  std::vector<int32_t> made;           // by step: its first life in `lives`; one more at the end
  std::vector<int32_t> reads;          // indices of lives, by step
  std::vector<int32_t> reads_of;       // by step: its first in `reads`; one more at the end
  int32_t backward = 0;                // the first step of the backward pass
  int64_t peak = 0;
  int32_t peak_step = 0;
  double extra_seconds = 0;            // of what runs a second time

  // The first step that runs for this node of the backward pass or a later one.
  int32_t StepOf(int32_t late) const;
  // Bytes above the target, summed over steps.
  double Excess(int64_t target) const;
};

class RecomputeModel {
 public:
  // The graph must outlive the model.
  RecomputeModel(const Graph& graph, RecomputeCosts costs);

  const Graph& graph() const { return flow_.graph[0]; }
  int32_t boundary() const { return costs_.boundary; }
  double seconds(int32_t node) const { return costs_.seconds[node]; }
  double total_seconds() const { return total_seconds_; }
  size_t size() const { return size_; }  // nodes and the values they touch: what a simulation costs

  // Nodes before the boundary whose results can be made again, in list order.
  const std::vector<int32_t>& candidates() const { return candidates_; }
  // Results and operands in the arena, as roots (Flow), each once.
  const std::vector<ValueId>& results(int32_t node) const { return units_[node].results; }
  const std::vector<ValueId>& operands(int32_t node) const { return units_[node].operands; }
  int64_t bytes(ValueId root) const { return bytes_[root]; }
  int32_t producer(ValueId root) const { return graph().value(root).node; }
  bool IsSide(ValueId root) const { return side_[root]; }  // IsSideResult
  bool ReadLate(int32_t node) const { return units_[node].read_late; }

  void Simulate(const Again& again, RecomputeTrace* trace) const;

  // Why bytes are alive: for pictures.
  enum Kind { kForward, kSaved, kRecomputed, kBackward, kWorkspace, kKinds };
  using KindBytes = std::array<int64_t, kKinds>;
  // By step of a trace that Simulate made.
  std::vector<KindBytes> Split(const RecomputeTrace& trace) const;

 private:
  struct Unit {
    bool runs = false;  // no constant, no view, not dead
    bool read_late = false, output = false;
    std::vector<ValueId> operands, results;
  };

  void MakeUnits();
  void MarkReaders();
  struct Late;
  Late MakeLate(const Again& again) const;
  void MakeRuns(const Late& late, RecomputeTrace* t) const;
  void FindLives(const Again& again, RecomputeTrace* t) const;
  void SumUp(RecomputeTrace* t) const;
  template <typename F>
  void ForLives(const RecomputeTrace& t, F f) const;
  // Which clone of the node there is for a reader in the backward pass; 0: the original.
  size_t At(const Again& again, int32_t node, int32_t late) const { return again[with_[node]].At(late); }
  // Which of the results' incarnations serves it.
  size_t Serving(const Again& again, ValueId root, int32_t late) const {
    return producer(root) < costs_.boundary && !side_[root] ? At(again, producer(root), late) : 0;
  }
  bool TakesOver(const RecomputeTrace& t, int32_t step, ValueId out) const;

  const Flow flow_;
  const RecomputeCosts costs_;
  const std::vector<int32_t> with_;  // RepeatedWith
  std::vector<Unit> units_;        // by node
  std::vector<int64_t> bytes_;     // by root; 0 outside the arena
  std::vector<bool> side_;         // by root
  std::vector<int32_t> candidates_;
  double total_seconds_ = 0;
  size_t size_ = 0;
};

}  // namespace onnxtrain
