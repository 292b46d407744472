#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>

#include "absl/container/inlined_vector.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/parallel.h"
#include "backends/unit_graph.h"
#include "frontend/base/status.h"
#include "frontend/ops/layout.h"

namespace onnxtrain::cpu {
namespace {

bool IsFusibleType(DType dtype) { return dtype == DType::kBool || (IsFloat(dtype) && DTypeSize(dtype) <= 4); }

// Returns true if the node can be an instruction of a cpu.Fused.
bool IsFusible(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs.size() > 3) return false;
  for (ValueId v : node.inputs) {
    if (v == kNoValue || !IsFusibleType(graph.type(v).dtype)) return false;
  }
  const EntryName entry = GetEntry(graph, node);
  const bool known = entry.name == "Where" || FindUnary(entry.name) != nullptr || FindBinary(entry.name) != nullptr;
  if (!known) return false;
  std::array<DType, 3> dtypes{};
  for (size_t i = 0; i < node.inputs.size(); ++i) dtypes[i] = graph.type(node.inputs[i]).dtype;
  return TakesTypes(entry.name, std::span(dtypes).first(node.inputs.size()), graph.type(node.outputs[0]).dtype);
}

// Matches a sum over the leading or the trailing axes of a tensor (`axes` empty: all) that is large enough to be
// divided among threads.
std::optional<FusedReduction> MatchReduction(const Shape& x, const std::vector<int64_t>& axes) {
  std::vector<bool> folded(x.size(), axes.empty());
  for (int64_t a : axes) folded[a] = true;
  int64_t extents[2] = {1, 1};  // products of the kept and of the reduced axes
  std::vector<bool> runs;       // by run of adjacent axes: true if reduced
  for (size_t a = 0; a < x.size(); ++a) {
    extents[folded[a]] *= x[a];
    if (x[a] != 1 && (runs.empty() || runs.back() != folded[a])) runs.push_back(folded[a]);
  }
  const int64_t size = extents[0] * extents[1];
  if (size == 0 || runs.size() > 2 || (runs.size() == 1 && !runs[0]) || runs.empty()) return std::nullopt;
  constexpr int64_t kMinColumns = 16, kMinTerms = 64, kMinRows = 16;  // least work that pays several threads
  if (runs.size() == 1) return FusedReduction{.columns = size};
  if (runs[0]) {
    const bool pays = extents[0] >= kMinColumns && (extents[1] >= kMinTerms || size <= kGrain);
    return pays ? std::optional(FusedReduction{.columns = extents[0], .by_column = true}) : std::nullopt;
  }
  const bool pays = extents[1] >= kMinTerms && (extents[0] >= kMinRows || size <= kGrain);
  return pays ? std::optional(FusedReduction{.columns = extents[1]}) : std::nullopt;
}

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(const Graph& graph) : graph_(graph), pattern_(graph), units_(pattern_) {
    for (const Node& node : graph.nodes()) fusible_.push_back(IsFusible(graph, node));
    FindReductions();
    FindInnerValues();
    MergeNodes();
  }

  absl::StatusOr<Graph> Build(ValueMap* values) const {
    Graph result;
    Rewriter r(graph_, &result);
    for (int32_t unit : units_.Order()) {
      const std::span<const int32_t> members = units_.members(unit);
      if (members.size() == 1) {
        r.Copy(graph_.nodes()[members[0]]);
      } else {
        RETURN_IF_ERROR(Emit(members, r));
      }
    }
    r.CopyOutputs();
    if (values != nullptr) *values = r.values();
    return result;
  }

  // Implements cpu::FindSumChains.
  std::vector<bool> FindSumChains() const {
    std::vector<bool> found(fusible_.size());
    for (size_t n = 0; n < found.size(); ++n) {
      found[n] =
          std::ranges::all_of(units_.members(Unit(n)), [&](int32_t m) { return !fusible_[m] || IsSumOrCast(m); });
    }
    return found;
  }

 private:
  // A reduction of a value of a chain, which the chain can compute.
  struct Reduction {
    int32_t chain;      // the node that computes the reduced value
    int32_t view = -1;  // the view that the reduction reads, if any; it has no other user
    FusedReduction sum;
  };

  void MergeNodes() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (reductions_[n]) TryFuseReduction(static_cast<int32_t>(n));
      if (!fusible_[n]) continue;
      for (ValueId v : graph_.nodes()[n].inputs) TryMergeProducer(static_cast<int32_t>(n), v);
    }
  }

  // Returns true for an Add, or a Cast between f32 and bf16.
  bool IsSumOrCast(int32_t n) const {
    const Node& node = graph_.nodes()[n];
    const auto has_type = [&](ValueId v) {
      return graph_.type(v).dtype == DType::kFloat32 || graph_.type(v).dtype == DType::kBFloat16;
    };
    return node.op == "Add" || (node.op == "Cast" && has_type(node.inputs[0]) && has_type(node.outputs[0]));
  }

  const Type& GetType(int32_t node) const { return graph_.type(graph_.nodes()[node].outputs[0]); }

  // Returns true if the results of both nodes have the same extents in memory order.
  bool HaveSameShape(int32_t a, int32_t b) const {
    const Type &x = GetType(a), &y = GetType(b);
    return x.layout == y.layout ? x.shape == y.shape : PhysicalShape(x) == PhysicalShape(y);
  }

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
    const int32_t units[] = {Unit(reduction.chain), Unit(n), reduction.view < 0 ? -1 : Unit(reduction.view)};
    TryMerge({units, reduction.view < 0 ? 2u : 3u});
    TryFuseIntoRoundingProducer(reduction.chain);
  }

  // Merges reductions that are the only users of an upcast into the chain that rounded the value, even if other nodes
  // read the rounded value.
  void TryFuseIntoRoundingProducer(int32_t cast) {
    const Node& node = graph_.nodes()[cast];
    const auto is_reduction = [&](int32_t r) { return Unit(r) == Unit(cast) && !fusible_[r]; };
    const std::span<const int32_t> readers = pattern_.users(node.outputs[0]);
    if (node.op != "Cast" || pattern_.IsOutput(node.outputs[0]) ||
        !std::all_of(readers.begin(), readers.end(), is_reduction))
      return;
    const int32_t p = graph_.value(node.inputs[0]).node;
    if (p >= 0 && fusible_[p] && HaveSameShape(p, cast)) TryJoin(p, cast);
  }

  // Merges the units of two nodes.
  void TryJoin(int32_t p, int32_t n) {
    if (const int32_t units[] = {Unit(p), Unit(n)}; units[0] != units[1]) TryMerge(units);
  }

  void TryMerge(std::span<const int32_t> units) {
    if (CanCompute(units)) units_.TryMerge(units);
  }

  // Returns true if one kernel can compute the nodes of these units.
  bool CanCompute(std::span<const int32_t> units) const {
    size_t nodes = 0, sums = 0, rotations = 0;
    const FusedReduction* first = nullptr;
    absl::InlinedVector<ValueId, 16> inputs;
    for (int32_t u : units) {
      nodes += units_.members(u).size();
      if (nodes > static_cast<size_t>(kMaxInstructions)) return false;
      for (int32_t n : units_.members(u)) {
        rotations += graph_.nodes()[n].op == kRotateHalves;
        if (reductions_[n]) {
          const FusedReduction& sum = reductions_[n]->sum;
          if (first == nullptr) first = &sum;
          if (++sums > kMaxFusedReductions || !sum.IsCompatibleWith(*first)) return false;
        }
        if (!AddInputs(n, units, &inputs)) return false;
      }
    }
    return rotations == 0 || sums == 0;
  }

  // Adds the operands of the node that are produced outside of the units. Returns false if there are too many, or if it
  // reads a reduction of the units, which is complete only at the end.
  bool AddInputs(int32_t n, std::span<const int32_t> units, absl::InlinedVector<ValueId, 16>* inputs) const {
    for (ValueId v : graph_.nodes()[n].inputs) {
      if (v == kNoValue) continue;
      const int32_t p = graph_.value(v).node;
      if (p >= 0 && std::ranges::find(units, Unit(p)) != units.end()) {
        if (reductions_[p]) return false;
      } else if (std::ranges::find(*inputs, v) == inputs->end()) {
        if (inputs->size() == kMaxFusedInputs) return false;
        inputs->push_back(v);
      }
    }
    return true;
  }

  // Finds the values whose users can all be fused with their producers, apart from those that read them later through a
  // Reshape to the same shape (RecomputeElementwise in optim/memory/policy.h).
  void FindInnerValues() {
    inner_.resize(graph_.values().size());
    for (size_t n = 0; n < fusible_.size(); ++n) {
      if (!fusible_[n]) continue;
      const ValueId v = graph_.nodes()[n].outputs[0];
      inner_[v] = std::ranges::all_of(pattern_.users(v), [&](int32_t r) {
        return CanJoinChain(r, static_cast<int32_t>(n)) || SeparatesReaders(r);
      });
    }
  }

  bool SeparatesReaders(int32_t n) const {
    const Node& node = graph_.nodes()[n];
    return node.op == "Reshape" && graph_.type(node.inputs[0]) == graph_.type(node.outputs[0]);
  }

  // Returns true if the node can be in a chain with `other`, reduce one of its values, or encode it (FuseCodes).
  bool CanJoinChain(int32_t n, int32_t other) const {
    return fusible_[n] ? HaveSameShape(n, other)
                       : reductions_[n].has_value() || views_[n] || graph_.nodes()[n].op == "QuantizeDynamic";
  }

  void TryMergeProducer(int32_t n, ValueId v) {
    if (inner_[v]) TryJoin(graph_.value(v).node, n);
  }

  int32_t Unit(size_t node) const { return units_.unit(static_cast<int32_t>(node)); }

  absl::Status Emit(std::span<const int32_t> nodes, Rewriter& r) const {
    const std::vector<ValueId> inputs = FindInputs(graph_, nodes);
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
      slots[out] = AddInstruction(MakeInstruction(graph_.nodes()[n], slots), inputs.size(), &program);
      if (!units_.IsReadOutside(out)) continue;
      results.push_back(out);
      if (std::ranges::find(program.results, slots[out]) == program.results.end())
        program.results.push_back(slots[out]);
    }
    std::vector<Val> operands;
    for (ValueId v : inputs) operands.push_back(r.Map(v));
    r.b().set_source(graph_.nodes()[nodes.back()].source);
    const auto outputs = r.b().Ops("cpu.Fused", operands, ToAttrs(program));
    RETURN_IF_ERROR(r.b().status());
    const auto replace = [&](ValueId v, Val by) {
      const Val now = Reinterpret(by, graph_.type(v));
      r.Set(v, now);
      r.b().graph().SetValueName(now.id(), graph_.value(v).name);
    };
    for (const ValueId v : results)
      replace(v, outputs[std::ranges::find(program.results, slots.at(v)) - program.results.begin()]);
    for (size_t i = 0; i < sums.size(); ++i) replace(sums[i], outputs[program.results.size() + i]);
    return r.b().status();
  }

  // Appends the instruction, unless the program has it, and returns its slot. Each reader of a cast has its own copy.
  static int AddInstruction(const Instruction& in, size_t inputs, FusedProgram* program) {
    const auto same = std::ranges::find(program->code, in);
    const auto slot = static_cast<int>(inputs + (same - program->code.begin()));
    if (same == program->code.end()) program->code.push_back(in);
    return slot;
  }

  Instruction MakeInstruction(const Node& node, const std::map<ValueId, int>& slots) const {
    const EntryName entry = GetEntry(graph_, node);
    Instruction in{.entry = entry.name, .params = entry.params};
    for (size_t k = 0; k < node.inputs.size(); ++k) in.operands[k] = slots.at(node.inputs[k]);
    return in;
  }

  const Graph& graph_;
  const Pattern pattern_;
  UnitGraph units_;
  std::vector<bool> fusible_;
  std::vector<std::optional<Reduction>> reductions_;
  std::vector<bool> views_;  // by node: true for a view that only a reduction reads
  std::vector<bool> inner_;  // by value
};

}  // namespace

absl::StatusOr<Graph> FuseElementwise(const Graph& graph, ValueMap* values) {
  return ElementwiseFuser(graph).Build(values);
}

std::vector<bool> FindSumChains(const Graph& graph) { return ElementwiseFuser(graph).FindSumChains(); }

}  // namespace onnxtrain::cpu
