#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

bool IsForward(const Node& node) { return node.op == "LayerNorm" || node.op == "RmsNorm"; }
bool IsBackward(const Node& node) { return node.op == "LayerNormGrad" || node.op == "RmsNormGrad"; }
bool IsNorm(const Node& node) { return IsForward(node) || IsBackward(node); }
bool HasMean(const Node& node) { return node.op.starts_with("LayerNorm"); }

// The users of a value, grouped by the result of the fused kernel that they read.
struct Uses {
  std::vector<int32_t> low;      // casts to bf16
  std::vector<int32_t> columns;  // sums over all rows
  int32_t dropout = -1;
  bool wide = false;  // other users read the f32 value
};

class NormFuser {
 public:
  explicit NormFuser(const Graph& graph)
      : graph_(graph),
        pattern_(graph),
        in_sum_chain_(FindSumChains(graph)),
        done_(graph.nodes().size(), false),
        rewriter_(graph, &result_) {}

  absl::StatusOr<Graph> Run() && {
    for (int32_t n = 0; n < std::ssize(graph_.nodes()); ++n) {
      if (IsBackward(graph_.nodes()[n]) && CanFuseNorm(n)) PlanGrad(n);
    }
    for (int32_t n = 0; n < std::ssize(graph_.nodes()); ++n) {
      if (const auto grad = grads_.find(n); grad != grads_.end()) EmitGrad(grad->second);
      if (done_[n]) continue;
      if (!IsForward(graph_.nodes()[n]) || !CanFuseNorm(n) || !EmitNorm(n)) rewriter_.Copy(graph_.nodes()[n]);
      RETURN_IF_ERROR(rewriter_.b().status());
    }
    rewriter_.CopyOutputs();
    return std::move(result_);
  }

 private:
  struct Grad {
    int32_t node;
    std::vector<ValueId> terms, more;
    ValueId sum;  // Σ of the node's result and `more`
    Uses uses, dropped;
  };

  const Node& At(int32_t n) const { return graph_.nodes()[n]; }
  const Type& GetType(ValueId v) const { return graph_.type(v); }
  ValueId Normalized(int32_t n) const { return At(n).inputs[IsForward(At(n)) ? 0 : 1]; }

  bool CanFuseNorm(int32_t n) const {
    const Type& x = GetType(Normalized(n));
    const auto begin = x.shape.begin() + At(n).attrs.Int("axis");
    const int64_t row = std::accumulate(begin, x.shape.end(), int64_t{1}, std::multiplies<>());
    return x.dtype == DType::kFloat32 && row <= kMaxNormRow && x.elements() > 0;
  }

  // Returns true if the kernel can compute the node, since no other chain does.
  bool IsFree(int32_t n) const { return in_sum_chain_[n] && !done_[n]; }

  // Returns the sum that produces a value if it can be fused, else null.
  const Node* FindSum(ValueId v) const {
    const Node* node = pattern_.Producer(v, "Add");
    return node != nullptr && IsPlainSum(graph_, *node) && IsFree(graph_.value(v).node) ? node : nullptr;
  }
  const Node* FindInnerSum(ValueId v) const { return pattern_.HasOneUse(v) ? FindSum(v) : nullptr; }

  // Returns the terms of nested sums, in order; the value itself if `sum` is null.
  std::vector<ValueId> CollectTerms(ValueId v, const Node* sum) const {
    std::vector<ValueId> terms;
    while (sum != nullptr) {
      const int side = FindInnerSum(sum->inputs[0]) == nullptr && FindInnerSum(sum->inputs[1]) != nullptr ? 1 : 0;
      terms.push_back(sum->inputs[1 - side]);
      v = sum->inputs[side];
      sum = FindInnerSum(v);
    }
    terms.push_back(v);
    std::reverse(terms.begin(), terms.end());
    return terms;
  }

  // Maps a term, or the bf16 value that it was cast from.
  Val MapTerm(ValueId v) {
    const ValueId narrow = SkipUpcast(pattern_, v);
    return rewriter_.Map(narrow != v && in_sum_chain_[graph_.value(v).node] ? narrow : v);
  }

  bool IsCastToLow(int32_t n) const {
    return At(n).op == "Cast" && GetType(At(n).outputs[0]).dtype == DType::kBFloat16 && in_sum_chain_[n];
  }

  // Returns true if user n of v is so close to `at` that computing its result at `at` hardly extends its live range.
  bool IsNear(int32_t n, int32_t at, ValueId v) const {
    constexpr int32_t kFar = 32;
    return n - at <= kFar || n == pattern_.users(v).back();
  }

  // Returns the ReduceSum over all rows of the operand of node n, which is n itself or the user of the view n, or −1.
  int32_t FindColumnSum(int32_t n, int64_t row) const {
    const ValueId view = At(n).outputs[0];
    if (At(n).op == "Reshape" && pattern_.HasOneUse(view)) n = pattern_.users(view)[0];
    if (At(n).op != "ReduceSum" || !in_sum_chain_[n]) return -1;
    const Shape& x = GetType(At(n).inputs[0]).shape;
    int64_t kept = 1;
    std::vector<int64_t> axes = At(n).attrs.Ints("axes");
    std::sort(axes.begin(), axes.end());
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] != static_cast<int64_t>(i)) return -1;
    }
    for (size_t a = axes.size(); a < x.size(); ++a) kept *= x[a];
    return !axes.empty() && kept == row ? n : -1;
  }

  Uses ClassifyUses(ValueId v, int32_t at, int64_t row) const {
    Uses uses{.wide = pattern_.IsOutput(v)};
    for (int32_t n : pattern_.users(v)) {
      if (IsCastToLow(n) && IsNear(n, at, v)) {
        uses.low.push_back(n);
      } else if (const int32_t columns = row > 0 ? FindColumnSum(n, row) : -1; columns >= 0) {
        uses.columns.push_back(columns);
      } else if (row > 0 && uses.dropout < 0 && At(n).op == "Dropout") {
        uses.dropout = n;
      } else {
        uses.wide = true;
      }
    }
    return uses;
  }

  bool IsRead(ValueId v) const { return pattern_.IsOutput(v) || !pattern_.users(v).empty(); }

  // --- Forward ---

  bool EmitNorm(int32_t n) {
    const Node& node = At(n);
    const ValueId x = node.inputs[0], y = node.outputs[0], rstd = node.outputs.back();
    const Node* sum = pattern_.users(x)[0] == n ? FindSum(x) : nullptr;
    std::vector<ValueId> terms = CollectTerms(x, sum);
    const auto dropout = std::find_if(terms.begin(), terms.end(), [&](ValueId v) { return IsDropout(v, n, sum); });
    const Uses uses = ClassifyUses(y, n, 0);
    if (sum == nullptr && dropout == terms.end() && uses.low.empty()) return false;
    Attrs attrs = {{"axis", node.attrs.Int("axis")}, {"epsilon", node.attrs.Float("epsilon")}};
    Vals in = {rewriter_.Map(node.inputs[1]), node.inputs.size() > 2 ? rewriter_.Map(node.inputs[2]) : Val(), Val()};
    if (dropout != terms.end()) {
      const Node& drop = *graph_.producer(*dropout);
      attrs.Set("dropped", static_cast<int64_t>(dropout - terms.begin()));
      in[kNormKey] = SetDropoutAttrs(drop, &attrs);
      *dropout = drop.inputs[0];
    }
    for (ValueId v : terms) in.push_back(MapTerm(v));
    const bool other = pattern_.IsOutput(x) || pattern_.users(x).size() > 1,
               made = terms.size() > 1 || attrs.Has("dropped");
    Results<NormResult> results;
    if (made && other) results.Add(NormResult::kSum, {x});
    if (uses.wide) results.Add(NormResult::kF32, {y});
    if (!uses.low.empty()) results.Add(NormResult::kBf16, GetOutputs(uses.low));
    if (HasMean(node) && IsRead(node.outputs[1])) results.Add(NormResult::kMean, {node.outputs[1]});
    if (IsRead(rstd)) results.Add(NormResult::kRstd, {rstd});
    Emit(node, in, std::move(attrs), results);
    return true;
  }

  // Returns true if the term is a Dropout without other users.
  bool IsDropout(ValueId v, int32_t norm, const Node* sum) const {
    const Node* node = pattern_.Producer(v, "Dropout");
    return node != nullptr && pattern_.HasOneUse(v) && (sum != nullptr || pattern_.users(v)[0] == norm);
  }

  Val SetDropoutAttrs(const Node& dropout, Attrs* attrs) {
    attrs->Set("ratio", dropout.attrs.Float("ratio"));
    attrs->Set("stream", dropout.attrs.Int("stream"));
    return rewriter_.Map(dropout.inputs[1]);
  }

  // --- Backward ---

  void PlanGrad(int32_t n) {
    const ValueId dy = At(n).inputs[0];
    Grad grad{.node = n,
              .terms = CollectTerms(dy, FindInnerSum(dy)),
              .more = {},
              .sum = At(n).outputs[0],
              .uses = {},
              .dropped = {}};
    std::vector<int32_t> nodes = {n};  // nodes that the kernel computes
    for (int32_t sum = SoleSum(grad.sum); sum >= 0 && CanDefer(n, sum); sum = SoleSum(grad.sum)) {
      grad.more.push_back(OtherOperand(At(sum), grad.sum));
      grad.sum = At(sum).outputs[0];
      nodes.push_back(sum);
    }
    const int32_t at = nodes.back();
    const Shape& x = GetType(At(n).inputs[1]).shape;
    const int64_t row = NumElements(Shape(x.begin() + At(n).attrs.Int("axis"), x.end()));
    grad.uses = ClassifyUses(grad.sum, at, row);
    if (grad.uses.dropout >= 0) grad.dropped = ClassifyUses(At(grad.uses.dropout).outputs[0], at, row);
    grad.dropped.wide |= grad.dropped.dropout >= 0;
    const bool gains = grad.terms.size() > 1 || !grad.more.empty() || !grad.uses.low.empty() ||
                       !grad.uses.columns.empty() || grad.uses.dropout >= 0;
    if (!gains) return;
    if (grad.uses.dropout >= 0) nodes.push_back(grad.uses.dropout);
    for (int32_t node : nodes) done_[node] = true;
    grads_.emplace(at, std::move(grad));
  }

  // Returns the sum that is the sole user of the value if it can be fused, else −1.
  int32_t SoleSum(ValueId v) const {
    const Node* sum = pattern_.SoleUser(v, "Add");
    return sum != nullptr && IsPlainSum(graph_, *sum) && IsFree(pattern_.users(v)[0]) ? pattern_.users(v)[0] : -1;
  }

  // Returns true if the gradient can be computed at the later node `at`: its other results have no users before it.
  bool CanDefer(int32_t n, int32_t at) const {
    return std::all_of(At(n).outputs.begin() + 1, At(n).outputs.end(),
                       [&](ValueId v) { return pattern_.users(v).empty() || pattern_.users(v)[0] > at; });
  }

  void EmitGrad(const Grad& grad) {
    const Node& node = At(grad.node);
    Attrs attrs = {{"axis", node.attrs.Int("axis")}, {"more", std::ssize(grad.more)}};
    const Val rstd = rewriter_.Map(node.inputs.back()), mean = HasMean(node) ? rewriter_.Map(node.inputs[3]) : Val();
    Vals in = {rewriter_.Map(node.inputs[2]), rstd, mean, Val(), rewriter_.Map(node.inputs[1])};
    for (ValueId v : grad.terms) in.push_back(MapTerm(v));
    for (ValueId v : grad.more) in.push_back(MapTerm(v));
    Results<NormGradResult> results;
    AddUses(grad.sum, grad.uses, NormGradResult::kSum, NormGradResult::kBf16, NormGradResult::kColumns, &results);
    if (grad.uses.dropout >= 0) {
      const Node& drop = At(grad.uses.dropout);
      in[kNormGradKey] = SetDropoutAttrs(drop, &attrs);
      AddUses(drop.outputs[0], grad.dropped, NormGradResult::kDropped, NormGradResult::kDroppedBf16,
              NormGradResult::kDroppedColumns, &results);
    }
    if (IsRead(node.outputs[1])) results.Add(NormGradResult::kScale, {node.outputs[1]});
    if (HasMean(node) && IsRead(node.outputs[2])) results.Add(NormGradResult::kBias, {node.outputs[2]});
    Emit(node, in, std::move(attrs), results);
  }

  // --- Both ---

  template <typename Result>
  struct Results {
    std::vector<int64_t> listed;
    std::vector<std::vector<ValueId>> values;  // values replaced by each result

    void Add(Result result, std::vector<ValueId> old) {
      listed.push_back(static_cast<int64_t>(result));
      values.push_back(std::move(old));
    }
  };

  template <typename Result>
  void AddUses(ValueId v, const Uses& uses, Result wide, Result low, Result columns, Results<Result>* results) {
    if (uses.wide) results->Add(wide, {v});
    if (!uses.low.empty()) results->Add(low, GetOutputs(uses.low));
    if (uses.columns.empty()) return;
    results->Add(columns, GetOutputs(uses.columns));
    for (int32_t n : uses.columns) {
      const int32_t view = graph_.value(At(n).inputs[0]).node;
      if (At(n).inputs[0] != v) done_[view] = true;  // only the sum reads the view
    }
  }

  std::vector<ValueId> GetOutputs(const std::vector<int32_t>& nodes) const {
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
        const Val now = out[i].shape() == GetType(old).shape ? out[i] : Reshape(out[i], GetType(old).shape);
        rewriter_.Set(old, now);
        rewriter_.b().graph().SetValueName(now.id(), graph_.value(old).name);
        done_[graph_.value(old).node] = true;
      }
    }
  }

  const Graph& graph_;
  const Pattern pattern_;
  const std::vector<bool> in_sum_chain_;  // by node: result of FindSumChains
  std::vector<bool> done_;                // by node: true if fused into another node
  std::map<int32_t, Grad> grads_;         // by the node at which they are emitted
  Graph result_;
  Rewriter rewriter_;
};

}  // namespace

absl::StatusOr<Graph> FuseNorms(const Graph& graph) {
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), IsNorm)) return graph;
  return NormFuser(graph).Run();
}

}  // namespace onnxtrain::cpu
