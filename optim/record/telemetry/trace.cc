#include "optim/record/telemetry/trace.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>
#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "frontend/ops/cost.h"
#include "frontend/passes/rematerialize.h"
#include "optim/step/loss.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxSpans = 200'000;
constexpr const char* kPhaseNames[] = {"forward", "backward", "update", "pack weights"};

struct PhaseOfSpan {
  std::string_view span;
  double PhaseSeconds::*seconds;
};
constexpr PhaseOfSpan kPhasesOfSpans[] = {{"copy", &PhaseSeconds::copy},
                                          {"forward", &PhaseSeconds::forward},
                                          {"backward", &PhaseSeconds::backward},
                                          {"update", &PhaseSeconds::update},
                                          {"pack weights", &PhaseSeconds::update}};

std::string TypesText(const Graph& graph, const Node& node) {
  std::string text;
  const auto add = [&](const ValueIds& values) {
    for (const ValueId v : values)
      StrAppend(&text, text.empty() || text.ends_with("→ ") ? "" : ", ", v == kNoValue ? "-" : ToString(graph.type(v)));
  };
  add(node.inputs);
  StrAppend(&text, " → ");
  add(node.outputs);
  return text;
}

double Seconds(const NodeRun& run) { return std::chrono::duration<double>(run.end - run.begin).count(); }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace

absl::StatusOr<StepRange> ParseStepRange(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = ParseInt(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : ParseInt(text.substr(dash + 1));
  if (!first.ok() || !last.ok() || *first < 1 || *last < *first)
    return Invalid("expected updates like 20-29, from 1 on, got '", text, "'");
  return StepRange{*first, *last};
}

void Trace::Add(int track, std::string name, Time begin, Time end) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() >= kMaxSpans && !recording_) {
    ++dropped_;
    return;
  }
  spans_.push_back({track, std::move(name), begin, end});
}

void Trace::BeginUpdate(int64_t step) {
  const std::lock_guard lock(mutex_);
  recording_ = steps_.Covers(step);
  if (recording_) updates_.push_back(step);
}

void Trace::EndUpdate(int64_t step, Time begin) {
  Add(kTraining, StrCat("update ", step), begin, std::chrono::steady_clock::now());
  const std::lock_guard lock(mutex_);
  recording_ = false;
}

std::vector<NodeRun>* Trace::BeginRun() {
  run_nodes_.clear();
  run_begin_ = std::chrono::steady_clock::now();
  return &run_nodes_;
}

void Trace::EndRun(int64_t program, const std::string& name, const Graph& graph) {
  const Time end = std::chrono::steady_clock::now();
  auto found = programs_.find(program);
  if (found == programs_.end()) found = programs_.emplace(program, Describe(name, graph)).first;
  Add(kTraining, name, run_begin_, end);
  AddPhases(found->second);
  for (const NodeRun& run : run_nodes_) nodes_.push_back({&found->second, recorded_updates() - 1, run});
}

Trace::ProgramInfo Trace::Describe(const std::string& name, const Graph& graph) {
  ProgramInfo program{.name = name};
  const std::vector<bool> backward = DependsOn(graph, kInverseDenominatorFeed);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const Phase phase = name == "derive"               ? Phase::kDerive
                        : IsUpdateSource(*node.source) ? Phase::kUpdate
                        : backward[n]                  ? Phase::kBackward
                                                       : Phase::kForward;
    program.nodes.push_back(
        {node.op, node.source, TypesText(graph, node), phase, NodeFlops(graph, node), NodeBytes(graph, node)});
  }
  return program;
}

// Adds a span for each sequence of nodes of one phase. Recomputed nodes count as backward.
void Trace::AddPhases(const ProgramInfo& program) {
  bool backward = false;
  for (size_t begin = 0, end = 0; begin < run_nodes_.size(); begin = end) {
    const auto phase = [&](size_t i) {
      const Phase own = program.nodes[run_nodes_[i].node].phase;
      return own == Phase::kForward && backward ? Phase::kBackward : own;
    };
    const Phase first = phase(begin);
    backward |= first == Phase::kBackward;
    for (end = begin + 1; end < run_nodes_.size() && phase(end) == first;) ++end;
    Add(kTraining, kPhaseNames[static_cast<int>(first)], run_nodes_[begin].begin, run_nodes_[end - 1].end);
  }
}

std::vector<OperatorCost> Trace::OperatorCosts() const {
  std::map<std::string, OperatorCost> costs;
  std::map<std::string, std::vector<double>> by_update;
  for (const NodeSpan& span : nodes_) {
    const NodeInfo& node = span.program->nodes[span.run.node];
    OperatorCost& cost = costs[node.op];
    cost.op = node.op;
    ++cost.calls;
    cost.seconds += Seconds(span.run);
    cost.flops += node.flops;
    cost.bytes += node.bytes;
    std::vector<double>& updates = by_update[node.op];
    updates.resize(updates_.size());
    updates[span.update] += Seconds(span.run);
  }
  std::vector<OperatorCost> sorted;
  const double updates = std::max<double>(1, static_cast<double>(updates_.size()));
  for (auto& [op, cost] : costs) {
    cost.median_seconds = Median(by_update[op]);
    cost.seconds /= updates, cost.flops /= updates, cost.bytes /= updates;
    sorted.push_back(std::move(cost));
  }
  std::ranges::stable_sort(sorted, std::greater(), &OperatorCost::seconds);
  return sorted;
}

std::vector<NodeCost> Trace::NodeCosts() const {
  std::map<std::pair<const ProgramInfo*, int32_t>, NodeCost> costs;
  const double updates = std::max<double>(1, static_cast<double>(updates_.size()));
  for (const NodeSpan& span : nodes_) {
    const NodeInfo& node = span.program->nodes[span.run.node];
    NodeCost& cost = costs[{span.program, span.run.node}];
    if (cost.calls++ == 0) std::tie(cost.op, cost.source, cost.types) = std::tie(node.op, node.source, node.types);
    cost.program = span.program->name;
    cost.seconds += Seconds(span.run) / updates;
    cost.flops += node.flops / updates;
    cost.bytes += node.bytes / updates;
  }
  std::vector<NodeCost> sorted;
  for (auto& [key, cost] : costs) sorted.push_back(std::move(cost));
  std::ranges::stable_sort(sorted, std::greater(), &NodeCost::seconds);
  return sorted;
}

PhaseSeconds Trace::Phases() const {
  const std::lock_guard lock(mutex_);
  PhaseSeconds phases;
  for (const SpanRecord& span : spans_) {
    const auto of = std::ranges::find(kPhasesOfSpans, span.name, &PhaseOfSpan::span);
    if (of != std::end(kPhasesOfSpans))
      phases.*of->seconds += std::chrono::duration<double>(span.end - span.begin).count();
  }
  return phases;
}

namespace {

// ToJson writes the "Trace Event Format" of the Chromium project. Complete events ("X") of one thread nest by their
// times; metadata events ("M") name the threads.

// Quotes a string of any bytes.
std::string Quoted(const std::string& text) { return WriteJson(nlohmann::json(text)); }

std::string TrackName(int track) {
  if (track == Trace::kTraining) return "training";
  return track == Trace::kCheckpoints ? "checkpoint writer" : StrCat("loader ", track - Trace::kFirstWorker + 1);
}

std::string ThreadName(int track) {
  return absl::StrFormat(R"({"ph":"M","name":"thread_name","pid":1,"tid":%d,"args":{"name":%s}})", track,
                         Quoted(TrackName(track)));
}

// Returns the JSON of a span up to its arguments.
std::string Event(int track, const std::string& name, const char* category, double begin, double end) {
  return absl::StrFormat(R"({"ph":"X","name":%s,"cat":"%s","pid":1,"tid":%d,"ts":%.3f,"dur":%.3f)", Quoted(name),
                         category, track, begin, end - begin);
}

}  // namespace

std::string Trace::ToJson() const {
  const std::lock_guard lock(mutex_);
  std::string text = R"({"displayTimeUnit":"ms","otherData":{)";
  for (const auto& [name, value] : run_) StrAppend(&text, Quoted(name), ":", Quoted(value), ",");
  StrAppend(&text, R"("spans left out":)", dropped_, "},\n\"traceEvents\":[\n");
  StrAppend(&text, R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"onnxtrain"}})");
  std::set<int> tracks;
  for (const SpanRecord& span : spans_) tracks.insert(span.track);
  for (const int track : tracks) StrAppend(&text, ",\n", ThreadName(track));
  for (const SpanRecord& s : spans_)
    StrAppend(&text, ",\n", Event(s.track, s.name, "run", Microseconds(s.begin), Microseconds(s.end)), "}");
  for (const NodeSpan& span : nodes_) {
    const NodeInfo& node = span.program->nodes[span.run.node];
    StrAppend(&text, ",\n",
              Event(kTraining, node.op, "operator", Microseconds(span.run.begin), Microseconds(span.run.end)));
    absl::StrAppendFormat(&text, R"(,"args":{"node":%s,"types":%s,"bytes":%.0f,"flops":%.0f}})", Quoted(node.source),
                          Quoted(node.types), node.bytes, node.flops);
  }
  return text + "\n]}\n";
}

}  // namespace onnxtrain
