#include "backends/dataflow.h"

#include <algorithm>

#include "frontend/base/log.h"

namespace onnxtrain {
namespace {

void FindRows(const Graph& graph, Dataflow* flow) {
  const std::vector<bool> running = FindLiveNodes(graph);
  flow->rows.assign(graph.nodes().size(), nullptr);
  for (size_t n = 0; n < running.size(); ++n) {
    if (!running[n]) continue;
    flow->rows[n] = FindOp(graph.nodes()[n].op);
    CHECK(flow->rows[n] != nullptr) << "no such operator: " << graph.nodes()[n].op;
  }
}

bool IsView(const Dataflow& flow, size_t n, bool reuse) {
  return reuse && flow.rows[n] != nullptr && flow.rows[n]->view;
}

void MakeGroups(const Graph& graph, bool reuse, Dataflow* flow) {
  flow->root.resize(graph.values().size());
  for (size_t v = 0; v < flow->root.size(); ++v) flow->root[v] = static_cast<ValueId>(v);
  flow->readers.resize(graph.values().size());
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (IsView(*flow, n, reuse)) {
      flow->root[node.outputs[0]] = flow->root[node.inputs[0]];
      continue;
    }
    if (flow->rows[n] == nullptr) continue;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      auto& list = flow->readers[flow->root[v]];
      if (list.empty() || list.back() != static_cast<int32_t>(n)) list.push_back(static_cast<int32_t>(n));
    }
  }
  flow->is_output.assign(graph.values().size(), false);
  for (const GraphOutput& output : graph.outputs()) flow->is_output[flow->root[output.value]] = true;
}

void AddEdge(Dataflow* flow, int32_t from, int32_t to) {
  flow->after[from].push_back(to);
  flow->before[to].push_back(from);
}

void DataEdges(const Graph& graph, Dataflow* flow) {
  flow->before.resize(graph.nodes().size());
  flow->after.resize(graph.nodes().size());
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (flow->rows[n] == nullptr) continue;
    for (ValueId v : graph.nodes()[n].inputs) {
      if (v == kNoValue) continue;
      const int32_t producer = graph.value(v).node;
      if (producer >= 0 && flow->runs(producer)) AddEdge(flow, producer, static_cast<int32_t>(n));
    }
  }
}

void BindInputsAndConstants(const Graph& graph, Dataflow* flow) {
  flow->bound.resize(graph.values().size());
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    flow->bound[graph.inputs()[i].value] = {.where = Place::Where::kInput, .index = static_cast<int32_t>(i)};
  }
  for (const Node& node : graph.nodes()) {
    if (IsConstant(node)) {
      flow->bound[node.outputs[0]] = {.where = Place::Where::kConstant, .index = node.outputs[0]};
    }
  }
}

// Returns true if a path leads from `from` to one of `to`.
bool Reaches(const Dataflow& flow, int32_t from, const std::vector<int32_t>& to) {
  std::vector<bool> seen(flow.rows.size(), false), target(flow.rows.size(), false);
  for (int32_t n : to) target[n] = true;
  std::vector<int32_t> stack = {from};
  seen[from] = true;
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    for (int32_t next : flow.after[n]) {
      if (target[next]) return true;
      if (!seen[next]) stack.push_back(next);
      seen[next] = true;
    }
  }
  return false;
}

// Returns true if the output may overwrite the input that it goes `into`. It must be the only output that does.
bool OverwritesInput(const Dataflow& flow, const GraphOutput& output, int32_t writer, int writers) {
  const ValueId out = flow.root[output.value];
  const ValueId old = output.into;
  if (flow.is_output[old]) return false;
  const auto& readers = flow.readers[old];
  const bool reads = std::find(readers.begin(), readers.end(), writer) != readers.end();
  return writers == 1 && (!reads || flow.CanOverwrite(writer, out, old));
}

// Orders every reader of the old value before the writer of the new one if that closes no cycle.
bool OrderAfterReaders(Dataflow* flow, int32_t writer, const std::vector<int32_t>& readers) {
  std::vector<int32_t> later;  // readers other than the writer
  for (int32_t n : readers) {
    if (n != writer) later.push_back(n);
  }
  if (Reaches(*flow, writer, later)) return false;
  for (int32_t n : later) AddEdge(flow, n, writer);
  return true;
}

void BindOutputs(const Graph& graph, Dataflow* flow) {
  std::vector<int> writers(graph.values().size(), 0);  // by graph input
  for (const GraphOutput& output : graph.outputs()) {
    if (output.into != kNoValue) ++writers[output.into];
  }
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const GraphOutput& output = graph.outputs()[o];
    const ValueId out = flow->root[output.value];
    if (!flow->in_arena(out)) continue;  // bound already
    if (output.into == kNoValue) {
      flow->bound[out] = {.where = Place::Where::kOutput, .index = static_cast<int32_t>(o)};
      continue;
    }
    const int32_t writer = graph.value(out).node;
    if (OverwritesInput(*flow, output, writer, writers[output.into]) &&
        OrderAfterReaders(flow, writer, flow->readers[output.into])) {
      flow->bound[out] = flow->bound[output.into];
    }
  }
}

}  // namespace

bool Dataflow::CanOverwrite(int32_t node, ValueId out, ValueId r) const {
  const Node& n = graph->nodes()[node];
  const uint32_t inputs = rows[node]->elementwise ? kAnyInput : out == n.outputs[0] ? rows[node]->overwrites : 0;
  if (inputs == 0) return false;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const ValueId v = n.inputs[i];
    const bool may = inputs >> std::min<size_t>(i, 31) & 1;
    if (v != kNoValue && root[v] == r && (!may || graph->type(v) != graph->type(out))) return false;
  }
  return true;
}

std::vector<bool> FindLiveNodes(const Graph& graph) {
  const auto& nodes = graph.nodes();
  std::vector<bool> wanted(graph.values().size(), false), running(nodes.size(), false);
  for (const GraphOutput& output : graph.outputs()) wanted[output.value] = true;
  for (size_t n = nodes.size(); n-- > 0;) {
    const Node& node = nodes[n];
    if (IsConstant(node)) continue;
    running[n] = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return wanted[v]; });
    if (!running[n]) continue;
    for (ValueId v : node.inputs) {
      if (v != kNoValue) wanted[v] = true;
    }
  }
  return running;
}

Dataflow AnalyzeDataflow(const Graph& graph, bool reuse) {
  Dataflow flow{.graph = &graph};
  FindRows(graph, &flow);
  MakeGroups(graph, reuse, &flow);
  DataEdges(graph, &flow);
  BindInputsAndConstants(graph, &flow);
  if (reuse) BindOutputs(graph, &flow);
  return flow;
}

}  // namespace onnxtrain
