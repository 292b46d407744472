#include "backends/cpu/fuse_elementwise.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "backends/cpu/fused.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/parallel.h"
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

// The sum over `axes` (empty: all) of a tensor, if those are its first or its last ones and enough is summed at a time and in all.
std::optional<ChainSum> SumOver(const Shape& x, const std::vector<int64_t>& axes) {
  std::vector<bool> folded(x.size(), axes.empty());
  for (int64_t a : axes) folded[a] = true;
  int64_t extents[2] = {1, 1};  // kept, folded
  std::vector<bool> turns;
  for (size_t a = 0; a < x.size(); ++a) {
    extents[folded[a]] *= x[a];
    if (x[a] != 1 && (turns.empty() || turns.back() != folded[a])) turns.push_back(folded[a]);
  }
  const int64_t size = extents[0] * extents[1];
  if (size == 0 || turns.size() > 2 || (turns.size() == 1 && !turns[0]) || turns.empty()) return std::nullopt;
  constexpr int64_t kFewestColumns = 16, kFewestTerms = 64, kFewestRows = 16;  // to share among threads, or one does it all
  if (turns.size() == 1) return ChainSum{.columns = size};
  if (turns[0]) {
    const bool pays = extents[0] >= kFewestColumns && (extents[1] >= kFewestTerms || size <= kGrain);
    return pays ? std::optional(ChainSum{.columns = extents[0], .by_column = true}) : std::nullopt;
  }
  const bool pays = extents[1] >= kFewestTerms && (extents[0] >= kFewestRows || size <= kGrain);
  return pays ? std::optional(ChainSum{.columns = extents[1]}) : std::nullopt;
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
    FindTails();
  }

  absl::StatusOr<Graph> Run() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (tails_[n]) TryTail(static_cast<int32_t>(n));
      if (!fusible_[n]) continue;
      for (ValueId v : graph_.nodes()[n].inputs) TryMerge(static_cast<int32_t>(n), v);
    }
    return Build();
  }

 private:
  // A sum that a chain can end with.
  struct Tail {
    int32_t chain;      // the node that computes the summed value
    int32_t view = -1;  // the Reshape between, read by nobody else
    ChainSum sum;
  };

  const Shape& ShapeOf(int32_t node) const { return graph_.type(graph_.nodes()[node].outputs[0]).shape; }

  void FindTails() {
    tails_.resize(graph_.nodes().size());
    views_.resize(graph_.nodes().size());
    for (size_t n = 0; n < tails_.size(); ++n) {
      tails_[n] = TailOf(graph_.nodes()[n]);
      if (tails_[n] && tails_[n]->view >= 0) views_[tails_[n]->view] = true;
    }
  }

  std::optional<Tail> TailOf(const Node& node) const {
    if ((node.op != "ReduceSum" && node.op != "ReduceMean") || graph_.type(node.inputs[0]).dtype != DType::kFloat32) return std::nullopt;
    const ValueId x = node.inputs[0];
    Tail tail{.chain = graph_.value(x).node};
    if (tail.chain >= 0 && graph_.nodes()[tail.chain].op == "Reshape" && readers_[x].size() == 1 && !IsOutput(x)) {
      tail.view = tail.chain;
      tail.chain = graph_.value(graph_.nodes()[tail.view].inputs[0]).node;
    }
    const auto sum = SumOver(graph_.type(x).shape, node.attrs.Ints("axes"));
    if (tail.chain < 0 || !fusible_[tail.chain] || !sum) return std::nullopt;
    tail.sum = *sum;
    tail.sum.mean = node.op == "ReduceMean";
    return tail;
  }

  // Joins a sum to the chain whose value it reads.
  void TryTail(int32_t n) {
    const Tail& tail = *tails_[n];
    std::vector<int32_t> merged = members_[unit_[tail.chain]];
    if (tail.view >= 0) merged.push_back(tail.view);
    merged.push_back(n);
    std::sort(merged.begin(), merged.end());
    if (MayBeOne(merged)) Join(std::move(merged), unit_[tail.chain]);
    TryBeforeRounding(tail.chain);
  }

  // Where what is summed was widened for that alone, the chain that rounded it makes the sum too, whoever reads it rounded.
  void TryBeforeRounding(int32_t cast) {
    const Node& node = graph_.nodes()[cast];
    const auto is_tail = [&](int32_t r) { return unit_[r] == unit_[cast] && !fusible_[r]; };
    const std::vector<int32_t>& readers = readers_[node.outputs[0]];
    if (node.op != "Cast" || IsOutput(node.outputs[0]) || !std::all_of(readers.begin(), readers.end(), is_tail)) return;
    const int32_t p = graph_.value(node.inputs[0]).node;
    if (p >= 0 && fusible_[p] && ShapeOf(p) == ShapeOf(cast) && unit_[p] != unit_[cast]) TryJoin(p, cast);
  }

  bool MayBeOne(const std::vector<int32_t>& nodes) const {
    std::vector<ChainSum> sums;
    for (int32_t n : nodes) {
      if (tails_[n]) sums.push_back(tails_[n]->sum);
    }
    const bool fit = std::all_of(sums.begin(), sums.end(), [&](const ChainSum& s) { return s.FitsWith(sums[0]); });
    return fit && sums.size() <= kMaxSums && nodes.size() <= static_cast<size_t>(kMaxInstructions) &&
           InputsOf(nodes).size() <= kMaxFusedInputs && !MakesCircle(nodes);
  }

  // Will the node be part of a chain over this shape, or read one of its values?
  bool IsOfChain(int32_t n, const Shape& shape) const {
    return fusible_[n] ? ShapeOf(n) == shape : tails_[n].has_value() || views_[n];
  }

  void Join(std::vector<int32_t> merged, int32_t unit) {
    for (int32_t m : merged) members_[unit_[m]].clear();
    for (int32_t m : merged) unit_[m] = unit;
    members_[unit] = std::move(merged);
  }

  void TryMerge(int32_t n, ValueId v) {
    const int32_t p = graph_.value(v).node;
    if (p < 0 || !fusible_[p] || unit_[p] == unit_[n] || ShapeOf(p) != ShapeOf(n)) return;
    const bool inner = std::all_of(readers_[v].begin(), readers_[v].end(),
                                   [&](int32_t r) { return IsOfChain(r, ShapeOf(n)); });
    if (inner) TryJoin(p, n);
  }

  // The units of two nodes as one.
  void TryJoin(int32_t p, int32_t n) {
    std::vector<int32_t> merged = members_[unit_[p]];
    merged.insert(merged.end(), members_[unit_[n]].begin(), members_[unit_[n]].end());
    std::sort(merged.begin(), merged.end());
    if (MayBeOne(merged)) Join(std::move(merged), unit_[p]);
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

  // Does a path leave the nodes and come back to them, or does one of them read a sum, which is known only in the end? Units count as one step: they will run as one node.
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
            if (!from_inside || tails_[n]) return true;
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

  bool IsOutput(ValueId v) const {
    return std::any_of(graph_.outputs().begin(), graph_.outputs().end(), [&](const auto& o) { return o.value == v; });
  }

  bool IsReadOutside(ValueId v, int32_t unit) const {
    return IsOutput(v) || std::any_of(readers_[v].begin(), readers_[v].end(), [&](int32_t n) { return unit_[n] != unit; });
  }

  absl::Status Emit(const std::vector<int32_t>& nodes, Rewriter& r) const {
    const std::vector<ValueId> inputs = InputsOf(nodes);
    std::map<ValueId, int> slots;
    for (size_t i = 0; i < inputs.size(); ++i) slots[inputs[i]] = static_cast<int>(i);
    FusedProgram program;
    std::vector<ValueId> results, sums;
    for (int32_t n : nodes) {
      const ValueId out = graph_.nodes()[n].outputs[0];
      if (tails_[n]) {
        program.sums.push_back(tails_[n]->sum);
        program.sums.back().slot = slots.at(graph_.nodes()[tails_[n]->chain].outputs[0]);
        sums.push_back(out);
      }
      if (!fusible_[n]) continue;
      slots[out] = static_cast<int>(inputs.size() + program.code.size());
      if (IsReadOutside(out, unit_[n])) {
        program.results.push_back(slots[out]);
        results.push_back(out);
      }
      program.code.push_back(InstructionOf(graph_.nodes()[n], slots));
    }
    std::vector<Val> operands;
    for (ValueId v : inputs) operands.push_back(r.Map(v));
    r.b().set_source(graph_.nodes()[nodes.back()].source);
    const auto outputs = r.b().Ops("cpu.Fused", operands, ToAttrs(program));
    RETURN_IF_ERROR(r.b().status());
    results.insert(results.end(), sums.begin(), sums.end());
    for (size_t i = 0; i < results.size(); ++i) {
      const Shape& shape = graph_.type(results[i]).shape;
      const Val now = outputs[i].shape() == shape ? outputs[i] : Reshape(outputs[i], shape);
      r.Set(results[i], now);
      r.b().graph().SetValueName(now.id(), graph_.value(results[i]).name);
    }
    return r.b().status();
  }

  Instruction InstructionOf(const Node& node, const std::map<ValueId, int>& slots) const {
    const EntryName entry = EntryOf(graph_, node);
    Instruction in{.entry = entry.name, .params = entry.params};
    for (size_t k = 0; k < node.inputs.size(); ++k) in.operands[k] = slots.at(node.inputs[k]);
    return in;
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;
  std::vector<int32_t> unit_;                  // by node
  std::vector<std::vector<int32_t>> members_;  // by unit, ascending; empty for one that was merged into another
  std::vector<bool> fusible_;
  std::vector<std::optional<Tail>> tails_;
  std::vector<bool> views_;                    // what only a tail reads
};

}  // namespace

absl::StatusOr<Graph> FuseElementwise(const Graph& graph) { return Fuser(graph).Run(); }

}  // namespace onnxtrain::cpu
