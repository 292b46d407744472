// A training graph as recomputation sees it: what is alive when, for any choice of what runs again. Simulated in microseconds,
// in list order, with takeovers and workspaces as the planner (backends/memory_plan.h) has them, but without offsets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/flow.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct RecomputeCosts {
  int32_t boundary = 0;            // the first node of the backward pass: passes/rematerialize.h
  std::vector<size_t> workspace;   // bytes, by node
  std::vector<double> seconds;     // by node
};

// By node: is it run again in the backward pass? Only candidates may be.
using Again = std::vector<bool>;

// One run of the graph. Index 0 of a pair is the original, 1 the clone.
struct RecomputeTrace {
  struct Run {
    int32_t node;
    bool clone;
  };
  std::vector<Run> runs;               // by step
  std::vector<int64_t> live;           // bytes, by step
  std::vector<int32_t> first[2], last[2];  // by root: steps; -1: never there
  std::vector<int32_t> last_early;     // by root: the last step that reads the original before the backward pass, or makes it
  int32_t backward = 0;                // the first step of the backward pass
  int64_t peak = 0;
  int32_t peak_step = 0;
  double extra_seconds = 0;            // of clones

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
  bool ReadLate(int32_t node) const { return units_[node].read_late; }

  void Simulate(const Again& again, RecomputeTrace* trace) const;

  // Why bytes are alive: for pictures.
  enum Kind { kForward, kSaved, kRecomputed, kBackward, kWorkspace, kKinds };
  using KindBytes = std::array<int64_t, kKinds>;
  // By step of a trace that Simulate made.
  std::vector<KindBytes> Split(const Again& again, const RecomputeTrace& trace) const;

 private:
  struct Unit {
    bool runs = false;  // no constant, no view, not dead
    bool read_late = false, output = false;
    std::vector<ValueId> operands, results;
  };

  void MakeUnits();
  void MarkReaders();
  void FindNeeded(const Again& again, std::vector<uint8_t>* original, std::vector<uint8_t>* clone) const;
  void MakeRuns(const Again& again, const std::vector<uint8_t>& original, const std::vector<uint8_t>& clone, RecomputeTrace* t) const;
  void FindLives(const Again& again, RecomputeTrace* t) const;
  void SumUp(const Again& again, RecomputeTrace* t) const;
  template <typename F>
  void ForLives(const Again& again, const RecomputeTrace& t, F f) const;
  bool Cloned(const Again& again, ValueId root) const { return producer(root) < costs_.boundary && again[producer(root)]; }
  bool TakesOver(const RecomputeTrace& t, const Again& again, int32_t step, ValueId out) const;

  const Flow flow_;
  const RecomputeCosts costs_;
  std::vector<Unit> units_;        // by node
  std::vector<int64_t> bytes_;     // by root; 0 outside the arena
  std::vector<int32_t> candidates_;
  double total_seconds_ = 0;
  size_t size_ = 0;
};

}  // namespace onnxtrain
