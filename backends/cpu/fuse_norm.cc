#include "backends/cpu/fuse_norm.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "backends/cpu/fuse_elementwise.h"
#include "backends/cpu/fused.h"
#include "backends/cpu/norm_ops.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

bool IsForward(const Node& node) { return node.op == "LayerNorm" || node.op == "RmsNorm"; }
bool IsBackward(const Node& node) { return node.op == "LayerNormGrad" || node.op == "RmsNormGrad"; }
bool IsNorm(const Node& node) { return IsForward(node) || IsBackward(node); }
bool HasMean(const Node& node) { return node.op.starts_with("LayerNorm"); }

// --- Chains that are sums ---------------------------------------------------------------------------------------------

bool IsNextToNorm(const Graph& graph, const std::vector<std::vector<int32_t>>& readers, const Node& node) {
  const auto reads = [&](ValueId v) { return graph.producer(v) != nullptr && IsNorm(*graph.producer(v)); };
  const auto is_read = [&](ValueId v) {
    return std::any_of(readers[v].begin(), readers[v].end(), [&](int32_t n) { return IsNorm(graph.nodes()[n]); });
  };
  return std::any_of(node.inputs.begin(), node.inputs.end(), reads) || std::any_of(node.outputs.begin(), node.outputs.end(), is_read);
}

bool IsSumOrCast(const Instruction& in) { return in.entry == "Add" || in.entry == "Cast/bf16-f32" || in.entry == "Cast/f32-bf16"; }

// The instructions of a chain as nodes, if they are sums and casts alone.
absl::StatusOr<std::optional<Vals>> Loosened(Rewriter& r, const Node& node) {
  ASSIGN_OR_RETURN(const FusedProgram program, FromAttrs(node.attrs, node.inputs.size()));
  if (!std::all_of(program.code.begin(), program.code.end(), IsSumOrCast)) return std::nullopt;
  Vals slots, results;
  for (ValueId v : node.inputs) slots.push_back(r.Map(v));
  for (const Instruction& in : program.code) {
    const Val a = slots[in.operands[0]];
    slots.push_back(in.entry == "Add" ? a + slots[in.operands[1]] : Cast(a, in.entry == "Cast/bf16-f32" ? DType::kFloat32 : DType::kBFloat16));
  }
  for (int slot : program.results) results.push_back(slots[slot]);
  for (const ChainSum& sum : program.sums) {
    const Val matrix = Reshape(slots[sum.slot], {slots[sum.slot].type().elements() / sum.columns, sum.columns});
    const std::vector<int64_t> axes = {sum.by_column ? 0 : 1};
    results.push_back(sum.mean ? ReduceMean(matrix, axes, false) : ReduceSum(matrix, axes, false));
  }
  return results;
}

absl::StatusOr<Graph> LoosenChains(const Graph& graph) {
  const auto readers = Readers(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (node.op != "cpu.Fused" || !IsNextToNorm(graph, readers, node)) return std::nullopt;
    auto loosened = Loosened(r, node);
    if (!loosened.ok()) return Vals(node.outputs.size(), r.b().Fail(loosened.status()));
    return *std::move(loosened);
  });
}

// --- Normalizations ---------------------------------------------------------------------------------------------------

// Who reads a value, told apart by what a normalization can do for them.
struct Uses {
  std::vector<int32_t> low;      // casts to bf16
  std::vector<int32_t> columns;  // sums over all rows
  int32_t dropout = -1;
  bool wide = false;             // others
};

class NormFuser {
 public:
  explicit NormFuser(const Graph& graph)
      : graph_(graph), pattern_(graph), readers_(Readers(graph)), is_output_(graph.values().size(), false), done_(graph.nodes().size(), false),
        rewriter_(graph, &result_) {
    for (const GraphOutput& output : graph.outputs()) is_output_[output.value] = true;
  }

  absl::StatusOr<Graph> Run() && {
    for (int32_t n = 0; n < std::ssize(graph_.nodes()); ++n) {
      if (IsBackward(graph_.nodes()[n]) && IsFit(n)) PlanGrad(n);
    }
    for (int32_t n = 0; n < std::ssize(graph_.nodes()); ++n) {
      if (const auto grad = grads_.find(n); grad != grads_.end()) EmitGrad(grad->second);
      if (done_[n]) continue;
      if (!IsForward(graph_.nodes()[n]) || !IsFit(n) || !EmitNorm(n)) rewriter_.Copy(graph_.nodes()[n]);
      RETURN_IF_ERROR(rewriter_.b().status());
    }
    rewriter_.CopyOutputs();
    return std::move(result_);
  }

 private:
  struct Grad {
    int32_t node;
    std::vector<ValueId> terms, more;
    ValueId sum;  // of its result and of `more`
    Uses uses, dropped;
  };

  const Node& At(int32_t n) const { return graph_.nodes()[n]; }
  const Type& TypeOf(ValueId v) const { return graph_.type(v); }
  ValueId Normalized(int32_t n) const { return At(n).inputs[IsForward(At(n)) ? 0 : 1]; }

  bool IsFit(int32_t n) const {
    const Type& x = TypeOf(Normalized(n));
    const auto begin = x.shape.begin() + At(n).attrs.Int("axis");
    const int64_t row = std::accumulate(begin, x.shape.end(), int64_t{1}, std::multiplies<>());
    return x.dtype == DType::kFloat32 && row <= kLongestNormRow && x.elements() > 0;
  }

  bool IsPlainSum(const Node& node) const {
    const Type& type = TypeOf(node.outputs[0]);
    return node.op == "Add" && type.dtype == DType::kFloat32 && TypeOf(node.inputs[0]) == type && TypeOf(node.inputs[1]) == type;
  }

  // The sum that makes a value and may be taken in; null: none.
  const Node* SumOf(ValueId v) const {
    const Node* node = pattern_.Producer(v, "Add");
    return node != nullptr && IsPlainSum(*node) && !done_[graph_.value(v).node] ? node : nullptr;
  }
  const Node* InnerSumOf(ValueId v) const { return pattern_.HasOneReader(v) ? SumOf(v) : nullptr; }

  // What is added up, in order. The value itself where `sum` is null.
  std::vector<ValueId> TermsOf(ValueId v, const Node* sum) const {
    std::vector<ValueId> terms;
    while (sum != nullptr) {
      const int side = InnerSumOf(sum->inputs[0]) == nullptr && InnerSumOf(sum->inputs[1]) != nullptr ? 1 : 0;
      terms.push_back(sum->inputs[1 - side]);
      v = sum->inputs[side];
      sum = InnerSumOf(v);
    }
    terms.push_back(v);
    std::reverse(terms.begin(), terms.end());
    return terms;
  }

  // A value of bf16 is read as it was before it was widened.
  Val Narrowest(ValueId v) {
    const Node* cast = pattern_.Producer(v, "Cast");
    return rewriter_.Map(cast != nullptr && TypeOf(cast->inputs[0]).dtype == DType::kBFloat16 ? cast->inputs[0] : v);
  }

  bool IsCastToLow(int32_t n) const { return At(n).op == "Cast" && TypeOf(At(n).outputs[0]).dtype == DType::kBFloat16; }

  // Would making the node's result right behind `at` hold memory for long?
  bool IsNear(int32_t n, int32_t at, ValueId v) const {
    constexpr int32_t kFar = 32;
    return n - at <= kFar || n == readers_[v].back();
  }

  // The node that sums all rows of what node n reads, n itself or the one behind a view; −1: none.
  int32_t ColumnsOf(int32_t n, int64_t row) const {
    const ValueId view = At(n).outputs[0];
    if (At(n).op == "Reshape" && pattern_.HasOneReader(view)) n = readers_[view][0];
    if (At(n).op != "ReduceSum") return -1;
    const Shape& x = TypeOf(At(n).inputs[0]).shape;
    int64_t kept = 1;
    std::vector<int64_t> axes = At(n).attrs.Ints("axes");
    std::sort(axes.begin(), axes.end());
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] != static_cast<int64_t>(i)) return -1;
    }
    for (size_t a = axes.size(); a < x.size(); ++a) kept *= x[a];
    return !axes.empty() && kept == row ? n : -1;
  }

  Uses UsesOf(ValueId v, int32_t at, int64_t row) const {
    Uses uses{.wide = is_output_[v]};
    for (int32_t n : readers_[v]) {
      if (IsCastToLow(n) && IsNear(n, at, v)) {
        uses.low.push_back(n);
      } else if (const int32_t columns = row > 0 ? ColumnsOf(n, row) : -1; columns >= 0) {
        uses.columns.push_back(columns);
      } else if (row > 0 && uses.dropout < 0 && At(n).op == "Dropout") {
        uses.dropout = n;
      } else {
        uses.wide = true;
      }
    }
    return uses;
  }

  bool IsRead(ValueId v) const { return is_output_[v] || !readers_[v].empty(); }

  // --- Forward ---

  bool EmitNorm(int32_t n) {
    const Node& node = At(n);
    const ValueId x = node.inputs[0], y = node.outputs[0], rstd = node.outputs.back();
    const Node* sum = readers_[x][0] == n ? SumOf(x) : nullptr;
    std::vector<ValueId> terms = TermsOf(x, sum);
    const auto dropout = std::find_if(terms.begin(), terms.end(), [&](ValueId v) { return IsDropout(v, n, sum); });
    const Uses uses = UsesOf(y, n, 0);
    if (sum == nullptr && dropout == terms.end() && uses.low.empty()) return false;
    Attrs attrs = {{"axis", node.attrs.Int("axis")}, {"epsilon", node.attrs.Float("epsilon")}};
    Vals in = {rewriter_.Map(node.inputs[1]), node.inputs.size() > 2 ? rewriter_.Map(node.inputs[2]) : Val(), Val()};
    if (dropout != terms.end()) {
      const Node& drop = *graph_.producer(*dropout);
      attrs.Set("dropped", static_cast<int64_t>(dropout - terms.begin()));
      in[kNormKey] = Dropping(drop, &attrs);
      *dropout = drop.inputs[0];
    }
    for (ValueId v : terms) in.push_back(Narrowest(v));
    const bool other = is_output_[x] || readers_[x].size() > 1, made = terms.size() > 1 || attrs.Has("dropped");
    Results<NormResult> results;
    if (made && other) results.Add(NormResult::kSum, {x});
    if (uses.wide) results.Add(NormResult::kWide, {y});
    if (!uses.low.empty()) results.Add(NormResult::kLow, OutputsOf(uses.low));
    if (HasMean(node) && IsRead(node.outputs[1])) results.Add(NormResult::kMean, {node.outputs[1]});
    if (IsRead(rstd)) results.Add(NormResult::kRstd, {rstd});
    Emit(node, in, std::move(attrs), results);
    return true;
  }

  // Is the term a dropout that nobody else reads? The only term of a sum that others read is left to them.
  bool IsDropout(ValueId v, int32_t norm, const Node* sum) const {
    const Node* node = pattern_.Producer(v, "Dropout");
    return node != nullptr && pattern_.HasOneReader(v) && (sum != nullptr || readers_[v][0] == norm);
  }

  Val Dropping(const Node& dropout, Attrs* attrs) {
    attrs->Set("ratio", dropout.attrs.Float("ratio"));
    attrs->Set("stream", dropout.attrs.Int("stream"));
    return rewriter_.Map(dropout.inputs[1]);
  }

  // --- Backward ---

  void PlanGrad(int32_t n) {
    const ValueId dy = At(n).inputs[0];
    Grad grad{.node = n, .terms = TermsOf(dy, InnerSumOf(dy)), .more = {}, .sum = At(n).outputs[0], .uses = {}, .dropped = {}};
    int32_t at = n;
    for (int32_t sum = OnlySum(grad.sum); sum >= 0 && MayWait(n, sum); sum = OnlySum(grad.sum)) {
      grad.more.push_back(At(sum).inputs[At(sum).inputs[0] == grad.sum ? 1 : 0]);
      grad.sum = At(sum).outputs[0];
      at = sum;
    }
    const Shape& x = TypeOf(At(n).inputs[1]).shape;
    const int64_t row = NumElements(Shape(x.begin() + At(n).attrs.Int("axis"), x.end()));
    grad.uses = UsesOf(grad.sum, at, row);
    if (grad.uses.dropout >= 0) grad.dropped = UsesOf(At(grad.uses.dropout).outputs[0], at, row);
    grad.dropped.wide |= grad.dropped.dropout >= 0;
    const bool gains = grad.terms.size() > 1 || !grad.more.empty() || !grad.uses.low.empty() || !grad.uses.columns.empty() || grad.uses.dropout >= 0;
    if (!gains) return;
    for (int32_t s = graph_.value(grad.sum).node; s != n;) {
      done_[s] = true;
      s = NodeBehind(s, grad.more);
    }
    done_[n] = true;
    if (grad.uses.dropout >= 0) done_[grad.uses.dropout] = true;
    grads_.emplace(at, std::move(grad));
  }

  // Which of a sum's operands is not in `more`, and the node that makes it.
  int32_t NodeBehind(int32_t sum, const std::vector<ValueId>& more) const {
    const bool first = std::find(more.begin(), more.end(), At(sum).inputs[0]) != more.end();
    return graph_.value(At(sum).inputs[first ? 1 : 0]).node;
  }

  // The plain sum that alone reads the value; −1: none.
  int32_t OnlySum(ValueId v) const {
    if (!pattern_.HasOneReader(v)) return -1;
    const int32_t n = readers_[v][0];
    return IsPlainSum(At(n)) && !done_[n] && At(n).inputs[0] != At(n).inputs[1] ? n : -1;
  }

  // Can the gradient be made as late as at node `at`: is nothing else that it gives read before?
  bool MayWait(int32_t n, int32_t at) const {
    return std::all_of(At(n).outputs.begin() + 1, At(n).outputs.end(), [&](ValueId v) { return readers_[v].empty() || readers_[v][0] > at; });
  }

  void EmitGrad(const Grad& grad) {
    const Node& node = At(grad.node);
    Attrs attrs = {{"axis", node.attrs.Int("axis")}, {"more", std::ssize(grad.more)}};
    const Val rstd = rewriter_.Map(node.inputs.back()), mean = HasMean(node) ? rewriter_.Map(node.inputs[3]) : Val();
    Vals in = {rewriter_.Map(node.inputs[2]), rstd, mean, Val(), rewriter_.Map(node.inputs[1])};
    for (ValueId v : grad.terms) in.push_back(Narrowest(v));
    for (ValueId v : grad.more) in.push_back(Narrowest(v));
    Results<NormGradResult> results;
    AddUses(grad.sum, grad.uses, NormGradResult::kSum, NormGradResult::kLow, NormGradResult::kColumns, &results);
    if (grad.uses.dropout >= 0) {
      const Node& drop = At(grad.uses.dropout);
      in[kNormGradKey] = Dropping(drop, &attrs);
      AddUses(drop.outputs[0], grad.dropped, NormGradResult::kDropped, NormGradResult::kDroppedLow, NormGradResult::kDroppedColumns, &results);
    }
    if (IsRead(node.outputs[1])) results.Add(NormGradResult::kScale, {node.outputs[1]});
    if (HasMean(node) && IsRead(node.outputs[2])) results.Add(NormGradResult::kBias, {node.outputs[2]});
    Emit(node, in, std::move(attrs), results);
  }

  // --- Both ---

  template <typename Result>
  struct Results {
    std::vector<int64_t> listed;
    std::vector<std::vector<ValueId>> values;  // by result: what it stands for

    void Add(Result result, std::vector<ValueId> old) {
      listed.push_back(static_cast<int64_t>(result));
      values.push_back(std::move(old));
    }
  };

  template <typename Result>
  void AddUses(ValueId v, const Uses& uses, Result wide, Result low, Result columns, Results<Result>* results) const {
    if (uses.wide) results->Add(wide, {v});
    if (!uses.low.empty()) results->Add(low, OutputsOf(uses.low));
    if (!uses.columns.empty()) results->Add(columns, OutputsOf(uses.columns));
  }

  std::vector<ValueId> OutputsOf(const std::vector<int32_t>& nodes) const {
    std::vector<ValueId> outputs;
    for (int32_t n : nodes) outputs.push_back(At(n).outputs[0]);
    return outputs;
  }

  template <typename Result>
  void Emit(const Node& node, const Vals& in, Attrs attrs, const Results<Result>& results) {
    attrs.Set("results", results.listed);
    attrs.Set("num_outputs", std::ssize(results.listed));
    rewriter_.b().set_source(node.source);
    const Vals out = rewriter_.b().Ops(StrCat("cpu.", node.op), in, std::move(attrs));
    if (!rewriter_.b().status().ok()) return;
    for (size_t i = 0; i < results.values.size(); ++i) {
      for (ValueId old : results.values[i]) {
        const Val now = out[i].shape() == TypeOf(old).shape ? out[i] : Reshape(out[i], TypeOf(old).shape);
        rewriter_.Set(old, now);
        rewriter_.b().graph().SetValueName(now.id(), graph_.value(old).name);
        done_[graph_.value(old).node] = true;
      }
    }
  }

  const Graph& graph_;
  const Pattern pattern_;
  const std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> is_output_;
  std::vector<bool> done_;          // by node: it has been, or will be, computed as part of another one
  std::map<int32_t, Grad> grads_;   // by the node at which they are made
  Graph result_;
  Rewriter rewriter_;
};

}  // namespace

absl::StatusOr<Graph> FuseNorms(const Graph& graph) {
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), IsNorm)) return graph;
  ASSIGN_OR_RETURN(const Graph loose, LoosenChains(graph));
  ASSIGN_OR_RETURN(const Graph fused, NormFuser(loose).Run());
  return FuseElementwise(Dce(fused));
}

}  // namespace onnxtrain::cpu
