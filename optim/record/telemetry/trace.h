// Records a timeline of a run's threads, with the operators of some updates, and writes it in Chrome's trace format
// (chrome://tracing, https://ui.perfetto.dev).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

// A range of updates, counted from 1.
struct StepRange {
  int64_t first = 0, last = 0;  // inclusive

  bool Covers(int64_t step) const { return first <= step && step <= last; }
};
// Parses "20-29" or "20".
absl::StatusOr<StepRange> ParseStepRange(std::string_view text);

// One operator of the recorded updates.
struct OperatorCost {
  std::string op;
  int64_t calls = 0;            // in all recorded updates
  double seconds = 0;           // per update
  double median_seconds = 0;    // median over the updates
  double flops = 0, bytes = 0;  // per update; 0: unknown
};

// One node of a program.
struct NodeCost {
  std::string op, source, types;  // `source`: the node of the ONNX model; may be empty
  std::string program;
  int64_t calls = 0;
  double seconds = 0;  // per update
  double flops = 0, bytes = 0;
};

// Seconds of the recorded updates.
struct PhaseSeconds {
  double copy = 0;  // copies of batches into feeds
  double forward = 0;
  double backward = 0;  // including recomputation
  double update = 0;    // clipping, update rules, counters, packing of weights
};

class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A row of the timeline. Loader threads follow kFirstWorker.
  enum Track : uint16_t { kTraining = 1, kCheckpoints = 2, kFirstWorker = 3 };

  // `steps`: updates whose operators are recorded. `run`: metadata of the run for the file, by name.
  Trace(const StepRange& steps, std::vector<std::pair<std::string, std::string>> run)
      : steps_(steps), run_(std::move(run)), start_(std::chrono::steady_clock::now()) {}

  const StepRange& steps() const { return steps_; }
  int64_t recorded_updates() const { return static_cast<int64_t>(updates_.size()); }

  // Adds a span; thread-safe. After 200,000 spans, drops those outside the recorded updates.
  void Add(int track, std::string name, Time begin, Time end);

  // The following functions are called by the training thread.
  void BeginUpdate(int64_t step);
  void EndUpdate(int64_t step, Time begin);
  // Returns the buffer that Program::RecordNodes fills until EndRun.
  std::vector<NodeRun>* BeginRun();
  // Stores the nodes of the run that ended. `program`: an identifier of the program.
  void EndRun(int64_t program, const std::string& name, const Graph& graph);

  // Return the costs of the recorded updates, the slowest first.
  std::vector<OperatorCost> OperatorCosts() const;
  std::vector<NodeCost> NodeCosts() const;
  PhaseSeconds Phases() const;

  std::string ToJson() const;

 private:
  enum class Phase : uint8_t { kForward, kBackward, kUpdate, kDerive };
  struct NodeInfo {
    std::string op, source, types;
    Phase phase;
    double flops, bytes;
  };
  struct ProgramInfo {
    std::string name;
    std::vector<NodeInfo> nodes;
  };
  struct SpanRecord {
    int track;
    std::string name;
    Time begin, end;
  };
  struct NodeSpan {
    const ProgramInfo* program;
    int64_t update;  // index into updates_
    NodeRun run;
  };
  static ProgramInfo Describe(const std::string& name, const Graph& graph);
  void AddPhases(const ProgramInfo& program);
  double Microseconds(Time time) const { return std::chrono::duration<double, std::micro>(time - start_).count(); }

  const StepRange steps_;
  const std::vector<std::pair<std::string, std::string>> run_;
  const Time start_;
  mutable std::mutex mutex_;  // guards spans_ and dropped_
  std::vector<SpanRecord> spans_;
  int64_t dropped_ = 0;
  std::map<int64_t, ProgramInfo> programs_;
  std::vector<NodeSpan> nodes_;
  std::vector<int64_t> updates_;  // recorded updates
  bool recording_ = false;
  std::vector<NodeRun> run_nodes_;  // nodes of the program that is running
  Time run_begin_;
};

// Records the time of a scope. Costs a branch if `trace` is null.
class Span {
 public:
  Span(Trace* trace, int track, const char* name) : trace_(trace), track_(track), name_(name) {
    if (trace_ != nullptr) begin_ = std::chrono::steady_clock::now();
  }
  ~Span() {
    if (trace_ != nullptr) trace_->Add(track_, name_, begin_, std::chrono::steady_clock::now());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace* trace_;
  int track_;
  const char* name_;
  Trace::Time begin_;
};

}  // namespace onnxtrain
