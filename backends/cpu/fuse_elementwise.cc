#include "backends/cpu/fuse_elementwise.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "backends/cpu/fused.h"
#include "backends/cpu/kernels/elementwise.h"
#include "frontend/base/status.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

bool IsChained(DType dtype) { return dtype == DType::kBool || (IsFloat(dtype) && SizeOf(dtype) <= 4); }

// Can the node be an instruction?
bool IsFusible(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs.size() > 3) return false;
  for (ValueId v : node.inputs) {
    if (v == kNoValue || !IsChained(graph.type(v).dtype)) return false;
  }
  const EntryName entry = EntryOf(graph, node);
  const bool known = entry.name == "Where" || FindUnary(entry.name) != nullptr || FindBinary(entry.name) != nullptr;
  if (!known) return false;
  FusedProgram program{.code = {{.entry = entry.name}}, .results = {}};
  std::vector<DType> dtypes;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    program.code[0].operands[i] = static_cast<int>(i);
    dtypes.push_back(graph.type(node.inputs[i]).dtype);
  }
  const auto slots = SlotTypes(program, dtypes);
  return slots.ok() && slots->back() == graph.type(node.outputs[0]).dtype;
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : graph_(graph), readers_(Readers(graph)) {
    const size_t n = graph.nodes().size();
    unit_.resize(n);
    std::iota(unit_.begin(), unit_.end(), 0);
    members_.resize(n);
    fusible_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      members_[i] = {static_cast<int32_t>(i)};
      fusible_[i] = IsFusible(graph, graph.nodes()[i]);
    }
  }

  absl::StatusOr<Graph> Run() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (!fusible_[n]) continue;
      for (ValueId v : graph_.nodes()[n].inputs) TryMerge(static_cast<int32_t>(n), v);
    }
    return Build();
  }

 private:
  const Shape& ShapeOf(int32_t node) const { return graph_.type(graph_.nodes()[node].outputs[0]).shape; }

  void TryMerge(int32_t n, ValueId v) {
    const int32_t p = graph_.value(v).node;
    if (p < 0 || !fusible_[p] || unit_[p] == unit_[n] || ShapeOf(p) != ShapeOf(n)) return;
    const bool inner = std::all_of(readers_[v].begin(), readers_[v].end(),
                                   [&](int32_t r) { return fusible_[r] && ShapeOf(r) == ShapeOf(n); });
    if (!inner) return;
    std::vector<int32_t> merged = members_[unit_[p]];
    merged.insert(merged.end(), members_[unit_[n]].begin(), members_[unit_[n]].end());
    std::sort(merged.begin(), merged.end());
    if (merged.size() > static_cast<size_t>(kMaxInstructions) || InputsOf(merged).size() > kMaxFusedInputs) return;
    if (MakesCircle(merged)) return;
    const int32_t unit = unit_[p];
    members_[unit_[n]].clear();
    for (int32_t m : merged) unit_[m] = unit;
    members_[unit] = std::move(merged);
  }

  // What the nodes read from outside, in order of first use.
  std::vector<ValueId> InputsOf(const std::vector<int32_t>& nodes) const {
    std::vector<ValueId> inputs;
    for (int32_t n : nodes) {
      for (ValueId v : graph_.nodes()[n].inputs) {
        const int32_t p = graph_.value(v).node;
        const bool inside = p >= 0 && std::binary_search(nodes.begin(), nodes.end(), p);
        if (!inside && std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
      }
    }
    return inputs;
  }

  // Does a path leave the nodes and come back to them? Units count as one step: they will run as one node.
  // Nodes are joined in their order: behind the last of `nodes` each still is a unit of its own, and no way leads back from there.
  bool MakesCircle(const std::vector<int32_t>& nodes) const {
    std::vector<bool> seen(unit_.size(), false);
    std::vector<int32_t> stack = nodes;
    const auto inside = [&](int32_t n) { return std::binary_search(nodes.begin(), nodes.end(), n); };
    while (!stack.empty()) {
      const int32_t n = stack.back();
      stack.pop_back();
      const bool from_inside = inside(n);
      for (ValueId v : graph_.nodes()[n].outputs) {
        for (int32_t r : readers_[v]) {
          if (inside(r)) {
            if (!from_inside) return true;
            continue;
          }
          if (r > nodes.back() || seen[unit_[r]]) continue;
          seen[unit_[r]] = true;
          stack.insert(stack.end(), members_[unit_[r]].begin(), members_[unit_[r]].end());
        }
      }
    }
    return false;
  }

  // Units in topological order, those first whose last node is first in the list.
  std::vector<int32_t> UnitOrder() const {
    std::vector<int> missing(unit_.size(), 0);
    std::vector<std::set<int32_t>> next(unit_.size());
    for (size_t n = 0; n < unit_.size(); ++n) {
      for (ValueId v : graph_.nodes()[n].outputs) {
        for (int32_t r : readers_[v]) {
          if (unit_[r] != unit_[n] && next[unit_[n]].insert(unit_[r]).second) ++missing[unit_[r]];
        }
      }
    }
    std::set<std::pair<int32_t, int32_t>> ready;  // last node, unit
    const auto make_ready = [&](int32_t unit) { ready.insert({members_[unit].back(), unit}); };
    for (size_t u = 0; u < unit_.size(); ++u) {
      if (!members_[u].empty() && missing[u] == 0) make_ready(static_cast<int32_t>(u));
    }
    std::vector<int32_t> order;
    while (!ready.empty()) {
      const int32_t unit = ready.begin()->second;
      ready.erase(ready.begin());
      order.push_back(unit);
      for (int32_t u : next[unit]) {
        if (--missing[u] == 0) make_ready(u);
      }
    }
    return order;
  }

  absl::StatusOr<Graph> Build() const {
    Graph result;
    Rewriter r(graph_, &result);
    for (int32_t unit : UnitOrder()) {
      if (members_[unit].size() == 1) {
        r.Copy(graph_.nodes()[members_[unit][0]]);
      } else {
        RETURN_IF_ERROR(Emit(members_[unit], r));
      }
    }
    r.CopyOutputs();
    return result;
  }

  bool IsReadOutside(ValueId v, int32_t unit) const {
    const bool output = std::any_of(graph_.outputs().begin(), graph_.outputs().end(), [&](const auto& o) { return o.value == v; });
    return output || std::any_of(readers_[v].begin(), readers_[v].end(), [&](int32_t n) { return unit_[n] != unit; });
  }

  absl::Status Emit(const std::vector<int32_t>& nodes, Rewriter& r) const {
    const std::vector<ValueId> inputs = InputsOf(nodes);
    std::map<ValueId, int> slots;
    for (size_t i = 0; i < inputs.size(); ++i) slots[inputs[i]] = static_cast<int>(i);
    FusedProgram program;
    std::vector<ValueId> results;
    for (int32_t n : nodes) {
      const Node& node = graph_.nodes()[n];
      const EntryName entry = EntryOf(graph_, node);
      Instruction in{.entry = entry.name, .params = entry.params};
      for (size_t k = 0; k < node.inputs.size(); ++k) in.operands[k] = slots.at(node.inputs[k]);
      const auto slot = static_cast<int>(inputs.size() + program.code.size());
      slots[node.outputs[0]] = slot;
      if (IsReadOutside(node.outputs[0], unit_[n])) {
        program.results.push_back(slot);
        results.push_back(node.outputs[0]);
      }
      program.code.push_back(std::move(in));
    }
    std::vector<Val> operands;
    for (ValueId v : inputs) operands.push_back(r.Map(v));
    r.b().set_source(graph_.nodes()[nodes.back()].source);
    const auto outputs = r.b().Ops("cpu.Fused", operands, ToAttrs(program));
    RETURN_IF_ERROR(r.b().status());
    for (size_t i = 0; i < results.size(); ++i) {
      r.Set(results[i], outputs[i]);
      r.b().graph().SetValueName(outputs[i].id(), graph_.value(results[i]).name);
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;
  std::vector<int32_t> unit_;                  // by node
  std::vector<std::vector<int32_t>> members_;  // by unit, ascending; empty for one that was merged into another
  std::vector<bool> fusible_;
};

}  // namespace

absl::StatusOr<Graph> FuseElementwise(const Graph& graph) { return Fuser(graph).Run(); }

}  // namespace onnxtrain::cpu
