#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/fused.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/parallel.h"
#include "backends/reachability.h"
#include "frontend/base/status.h"
#include "frontend/ops/layout.h"

namespace onnxtrain::cpu {
namespace {

bool IsFusibleType(DType dtype) { return dtype == DType::kBool || (IsFloat(dtype) && DTypeSize(dtype) <= 4); }

// Can the node be an instruction of a cpu.Fused?
bool IsFusible(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs.size() > 3) return false;
  for (ValueId v : node.inputs) {
    if (v == kNoValue || !IsFusibleType(graph.type(v).dtype)) return false;
  }
  const EntryName entry = GetEntry(graph, node);
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

// Matches a sum over the leading or the trailing axes of a tensor (`axes` empty: all), where it is large enough to be
// shared among threads.
std::optional<FusedReduction> MatchReduction(const Shape& x, const std::vector<int64_t>& axes) {
  std::vector<bool> folded(x.size(), axes.empty());
  for (int64_t a : axes) folded[a] = true;
  int64_t extents[2] = {1, 1};  // kept, folded
  std::vector<bool> runs;       // folded or kept, by run of adjacent axes
  for (size_t a = 0; a < x.size(); ++a) {
    extents[folded[a]] *= x[a];
    if (x[a] != 1 && (runs.empty() || runs.back() != folded[a])) runs.push_back(folded[a]);
  }
  const int64_t size = extents[0] * extents[1];
  if (size == 0 || runs.size() > 2 || (runs.size() == 1 && !runs[0]) || runs.empty()) return std::nullopt;
  constexpr int64_t kMinColumns = 16, kMinTerms = 64, kMinRows = 16;  // of what threads share
  if (runs.size() == 1) return FusedReduction{.columns = size};
  if (runs[0]) {
    const bool pays = extents[0] >= kMinColumns && (extents[1] >= kMinTerms || size <= kGrain);
    return pays ? std::optional(FusedReduction{.columns = extents[0], .by_column = true}) : std::nullopt;
  }
  const bool pays = extents[1] >= kMinTerms && (extents[0] >= kMinRows || size <= kGrain);
  return pays ? std::optional(FusedReduction{.columns = extents[1]}) : std::nullopt;
}

// Limits the search for cycles, on average over all nodes.
constexpr int64_t kVisitsPerNode = 1000;

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(const Graph& graph) : graph_(graph), pattern_(graph), forest_(graph, ComputeUsers(graph)) {
    const size_t n = graph.nodes().size();
    seen_.assign(n, 0);
    visits_left_ = kVisitsPerNode * std::ssize(graph.nodes());
    unit_.resize(n);
    std::iota(unit_.begin(), unit_.end(), 0);
    members_.resize(n);
    fusible_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      members_[i] = {static_cast<int32_t>(i)};
      fusible_[i] = IsFusible(graph, graph.nodes()[i]);
    }
    FindReductions();
    MergeNodes();
  }

  absl::StatusOr<FusedGraph> Build() const {
    FusedGraph result;
    Rewriter r(graph_, &result.graph);
    for (int32_t unit : UnitOrder()) {
      if (members_[unit].size() == 1) {
        r.Copy(graph_.nodes()[members_[unit][0]]);
      } else {
        RETURN_IF_ERROR(Emit(members_[unit], r));
      }
    }
    r.CopyOutputs();
    result.values = r.values();
    return result;
  }

  // By node.
  std::vector<bool> FindSumChains() const {
    std::vector<bool> found(unit_.size());
    for (size_t n = 0; n < found.size(); ++n) {
      const std::vector<int32_t>& members = members_[unit_[n]];
      found[n] = std::all_of(members.begin(), members.end(), [&](int32_t m) { return !fusible_[m] || IsSumOrCast(m); });
    }
    return found;
  }

 private:
  // A reduction that a chain can compute over one of its values.
  struct Reduction {
    int32_t chain;      // the node that computes the reduced value
    int32_t view = -1;  // the view between, with no other user
    FusedReduction sum;
  };

  void MergeNodes() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (reductions_[n]) TryFuseReduction(static_cast<int32_t>(n));
      if (!fusible_[n]) continue;
      for (ValueId v : graph_.nodes()[n].inputs) TryMerge(static_cast<int32_t>(n), v);
    }
  }

  // An Add, or a Cast between f32 and bf16.
  bool IsSumOrCast(int32_t n) const {
    const Node& node = graph_.nodes()[n];
    const auto has_type = [&](ValueId v) {
      return graph_.type(v).dtype == DType::kFloat32 || graph_.type(v).dtype == DType::kBFloat16;
    };
    return node.op == "Add" || (node.op == "Cast" && has_type(node.inputs[0]) && has_type(node.outputs[0]));
  }

  // The extents in the order of memory.
  Shape GetShape(int32_t node) const { return PhysicalShape(graph_.type(graph_.nodes()[node].outputs[0])); }

  void FindReductions() {
    reductions_.resize(graph_.nodes().size());
    views_.resize(graph_.nodes().size());
    for (size_t n = 0; n < reductions_.size(); ++n) {
      reductions_[n] = FindReduction(graph_.nodes()[n]);
      if (reductions_[n] && reductions_[n]->view >= 0) views_[reductions_[n]->view] = true;
    }
  }

  std::optional<Reduction> FindReduction(const Node& node) const {
    if ((node.op != "ReduceSum" && node.op != "ReduceMean") || graph_.type(node.inputs[0]).dtype != DType::kFloat32)
      return std::nullopt;
    const ValueId x = node.inputs[0];
    Reduction reduction{.chain = graph_.value(x).node};
    if (reduction.chain >= 0 && FindOp(graph_.nodes()[reduction.chain].op)->view && pattern_.HasOneUse(x)) {
      reduction.view = reduction.chain;
      reduction.chain = graph_.value(graph_.nodes()[reduction.view].inputs[0]).node;
    }
    const PhysicalNode physical = ToPhysical(graph_, node);
    const auto sum = MatchReduction(physical.inputs[0].shape, physical.attrs.Ints("axes"));
    if (reduction.chain < 0 || !fusible_[reduction.chain] || !sum) return std::nullopt;
    reduction.sum = *sum;
    reduction.sum.mean = node.op == "ReduceMean";
    return reduction;
  }

  // Merges a reduction into the chain whose value it reads.
  void TryFuseReduction(int32_t n) {
    const Reduction& reduction = *reductions_[n];
    std::vector<int32_t> merged = members_[unit_[reduction.chain]];
    if (reduction.view >= 0) merged.push_back(reduction.view);
    merged.push_back(n);
    std::sort(merged.begin(), merged.end());
    if (CanFuse(merged)) Merge(std::move(merged), unit_[reduction.chain]);
    TryFuseIntoRoundingProducer(reduction.chain);
  }

  // Where an upcast feeds reductions only, merges them into the chain that rounded the value, even if others read the
  // rounded value.
  void TryFuseIntoRoundingProducer(int32_t cast) {
    const Node& node = graph_.nodes()[cast];
    const auto is_reduction = [&](int32_t r) { return unit_[r] == unit_[cast] && !fusible_[r]; };
    const std::vector<int32_t>& readers = pattern_.users(node.outputs[0]);
    if (node.op != "Cast" || pattern_.IsOutput(node.outputs[0]) ||
        !std::all_of(readers.begin(), readers.end(), is_reduction))
      return;
    const int32_t p = graph_.value(node.inputs[0]).node;
    if (p >= 0 && fusible_[p] && GetShape(p) == GetShape(cast) && unit_[p] != unit_[cast]) TryJoin(p, cast);
  }

  bool CanFuse(const std::vector<int32_t>& nodes) {
    std::vector<FusedReduction> sums;
    for (int32_t n : nodes) {
      if (reductions_[n]) sums.push_back(reductions_[n]->sum);
    }
    const bool fit =
        std::all_of(sums.begin(), sums.end(), [&](const FusedReduction& s) { return s.IsCompatibleWith(sums[0]); });
    return fit && sums.size() <= kMaxFusedReductions && nodes.size() <= static_cast<size_t>(kMaxInstructions) &&
           GetInputs(nodes).size() <= kMaxFusedInputs && !CreatesCycle(nodes);
  }

  // Can the node be part of a chain over this shape, or reduce one of its values?
  bool CanJoinChain(int32_t n, const Shape& shape) const {
    return fusible_[n] ? GetShape(n) == shape : reductions_[n].has_value() || views_[n];
  }

  void Merge(std::vector<int32_t> merged, int32_t unit) {
    for (int32_t m : merged) members_[unit_[m]].clear();
    for (int32_t m : merged) unit_[m] = unit;
    members_[unit] = std::move(merged);
  }

  void TryMerge(int32_t n, ValueId v) {
    const int32_t p = graph_.value(v).node;
    if (p < 0 || !fusible_[p] || unit_[p] == unit_[n] || GetShape(p) != GetShape(n)) return;
    const bool inner = std::all_of(pattern_.users(v).begin(), pattern_.users(v).end(),
                                   [&](int32_t r) { return CanJoinChain(r, GetShape(n)); });
    if (inner) TryJoin(p, n);
  }

  // Merges the units of two nodes.
  void TryJoin(int32_t p, int32_t n) {
    std::vector<int32_t> merged = members_[unit_[p]];
    merged.insert(merged.end(), members_[unit_[n]].begin(), members_[unit_[n]].end());
    std::sort(merged.begin(), merged.end());
    if (CanFuse(merged)) Merge(std::move(merged), unit_[p]);
  }

  // Values that the nodes read from outside, in order of first use.
  std::vector<ValueId> GetInputs(const std::vector<int32_t>& nodes) const {
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

  // Does a path leave the nodes and come back, or does one of them read a reduction, which is complete only at the end?
  // A unit is one step of a path, as it runs as one node. Nodes are merged in list order: each node after the last of
  // `nodes` is a unit of its own still, and no path leads back from there. Says yes where the search gets too long.
  bool CreatesCycle(const std::vector<int32_t>& nodes) {
    ++search_;
    std::vector<int32_t> stack = nodes, positions;
    for (int32_t n : nodes) positions.push_back(forest_.begin(n));
    std::sort(positions.begin(), positions.end());
    const auto inside = [&](int32_t n) { return std::binary_search(nodes.begin(), nodes.end(), n); };
    const auto surely_returns = [&](int32_t n) {
      const auto next = std::lower_bound(positions.begin(), positions.end(), forest_.begin(n));
      return next != positions.end() && *next < forest_.end(n);
    };
    while (!stack.empty()) {
      const int32_t n = stack.back();
      stack.pop_back();
      if (--visits_left_ < 0) return true;
      const bool from_inside = inside(n);
      for (ValueId v : graph_.nodes()[n].outputs) {
        for (int32_t r : pattern_.users(v)) {
          if (inside(r)) {
            if (!from_inside || reductions_[n]) return true;
            continue;
          }
          if (r > nodes.back() || seen_[unit_[r]] == search_) continue;
          if (surely_returns(r)) return true;
          seen_[unit_[r]] = search_;
          stack.insert(stack.end(), members_[unit_[r]].begin(), members_[unit_[r]].end());
        }
      }
    }
    return false;
  }

  // Units in topological order; among ready ones, that with the first last node comes first.
  std::vector<int32_t> UnitOrder() const {
    std::vector<int> missing(unit_.size(), 0);
    std::vector<std::set<int32_t>> next(unit_.size());
    for (size_t n = 0; n < unit_.size(); ++n) {
      for (ValueId v : graph_.nodes()[n].outputs) {
        for (int32_t r : pattern_.users(v)) {
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

  bool IsReadOutside(ValueId v, int32_t unit) const {
    return pattern_.IsOutput(v) ||
           std::any_of(pattern_.users(v).begin(), pattern_.users(v).end(), [&](int32_t n) { return unit_[n] != unit; });
  }

  absl::Status Emit(const std::vector<int32_t>& nodes, Rewriter& r) const {
    const std::vector<ValueId> inputs = GetInputs(nodes);
    std::map<ValueId, int> slots;
    for (size_t i = 0; i < inputs.size(); ++i) slots[inputs[i]] = static_cast<int>(i);
    FusedProgram program;
    std::vector<ValueId> results, sums;
    for (int32_t n : nodes) {
      const ValueId out = graph_.nodes()[n].outputs[0];
      if (reductions_[n]) {
        program.sums.push_back(reductions_[n]->sum);
        program.sums.back().slot = slots.at(graph_.nodes()[reductions_[n]->chain].outputs[0]);
        sums.push_back(out);
      }
      if (!fusible_[n]) continue;
      slots[out] = static_cast<int>(inputs.size() + program.code.size());
      if (IsReadOutside(out, unit_[n])) {
        program.results.push_back(slots[out]);
        results.push_back(out);
      }
      program.code.push_back(MakeInstruction(graph_.nodes()[n], slots));
    }
    std::vector<Val> operands;
    for (ValueId v : inputs) operands.push_back(r.Map(v));
    r.b().set_source(graph_.nodes()[nodes.back()].source);
    const auto outputs = r.b().Ops("cpu.Fused", operands, ToAttrs(program));
    RETURN_IF_ERROR(r.b().status());
    results.insert(results.end(), sums.begin(), sums.end());
    for (size_t i = 0; i < results.size(); ++i) {
      const Val now = Reinterpret(outputs[i], graph_.type(results[i]));
      r.Set(results[i], now);
      r.b().graph().SetValueName(now.id(), graph_.value(results[i]).name);
    }
    return r.b().status();
  }

  Instruction MakeInstruction(const Node& node, const std::map<ValueId, int>& slots) const {
    const EntryName entry = GetEntry(graph_, node);
    Instruction in{.entry = entry.name, .params = entry.params};
    for (size_t k = 0; k < node.inputs.size(); ++k) in.operands[k] = slots.at(node.inputs[k]);
    return in;
  }

  const Graph& graph_;
  const Pattern pattern_;
  const SpanningForest forest_;
  std::vector<int32_t> seen_;  // by unit: the last search that reached it
  int32_t search_ = 0;
  int64_t visits_left_;                        // of all searches
  std::vector<int32_t> unit_;                  // by node
  std::vector<std::vector<int32_t>> members_;  // by unit, ascending; empty for one that was merged into another
  std::vector<bool> fusible_;
  std::vector<std::optional<Reduction>> reductions_;
  std::vector<bool> views_;  // those that only a reduction reads
};

}  // namespace

absl::StatusOr<FusedGraph> FuseElementwise(const Graph& graph) { return ElementwiseFuser(graph).Build(); }

std::vector<bool> FindSumChains(const Graph& graph) { return ElementwiseFuser(graph).FindSumChains(); }

}  // namespace onnxtrain::cpu
