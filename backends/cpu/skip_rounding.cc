#include "backends/cpu/skip_rounding.h"

#include <algorithm>

#include "backends/cpu/absorb_casts.h"
#include "frontend/ops/row.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

class RoundingSkipper {
 public:
  explicit RoundingSkipper(const Graph& graph) : graph_(graph), pattern_(graph), readers_(Readers(graph)) {}

  absl::StatusOr<Graph> Run() {
    return Rewrite(graph_, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
      const ValueId exact = ExactOf(node);
      return exact == kNoValue ? std::nullopt : std::optional(Vals{r.Map(exact)});
    });
  }

 private:
  bool IsCast(const Node* node, DType from, DType to) const {
    return node != nullptr && node->op == "Cast" && graph_.type(node->inputs[0]).dtype == from && graph_.type(node->outputs[0]).dtype == to;
  }
  bool Narrows(const Node* node) const { return IsCast(node, DType::kFloat32, DType::kBFloat16); }
  bool Widens(const Node* node) const { return IsCast(node, DType::kBFloat16, DType::kFloat32); }

  // For a node that widens a rounded value back: the value before, where it may be read instead.
  ValueId ExactOf(const Node& node) const {
    const Node* narrow = Widens(&node) ? graph_.producer(node.inputs[0]) : nullptr;
    if (!Narrows(narrow) || !pattern_.HasOneReader(node.inputs[0])) return kNoValue;
    const ValueId exact = narrow->inputs[0];
    const bool skip = (IsConvOfHalves(graph_.producer(exact)) && !AllReadHalves(node.outputs[0])) || IsRoundedBehindRelu(node.outputs[0]) ||
                      IsNormInSum(exact, node.outputs[0]);
    return skip ? exact : kNoValue;
  }

  bool IsConvOfHalves(const Node* node) const {
    return node != nullptr && node->op.starts_with("Conv") && Widens(graph_.producer(node->inputs[0]));
  }

  // Kernels that do so, and chains that round what they give.
  bool AllReadHalves(ValueId v) const {
    return !readers_[v].empty() && std::all_of(readers_[v].begin(), readers_[v].end(), [&](int32_t n) {
      const Node& node = graph_.nodes()[n];
      return ReadsHalves(node.op) || (FindOp(node.op)->elementwise && IsRounded(node.outputs[0]));
    });
  }

  bool IsRounded(ValueId v) const {
    return !readers_[v].empty() && std::all_of(readers_[v].begin(), readers_[v].end(), [&](int32_t n) { return Narrows(&graph_.nodes()[n]); });
  }

  // The second of two, which takes the first as its residual.
  bool IsNormInSum(ValueId exact, ValueId v) const {
    const Node* norm = graph_.producer(exact);
    if (norm == nullptr || !norm->op.starts_with("BatchNorm") || norm->outputs[0] != exact) return false;
    const Node* sum = OnlyReader(v);
    if (sum == nullptr || sum->op != "Add") return false;
    ValueId other = sum->inputs[sum->inputs[0] == v ? 1 : 0];
    while (Widens(graph_.producer(other)) || Narrows(graph_.producer(other))) other = graph_.producer(other)->inputs[0];
    return graph_.value(other).node < graph_.value(exact).node;
  }

  const Node* OnlyReader(ValueId v) const { return pattern_.HasOneReader(v) ? &graph_.nodes()[readers_[v][0]] : nullptr; }

  bool IsRoundedBehindRelu(ValueId v) const {
    if (!pattern_.HasOneReader(v) || graph_.nodes()[readers_[v][0]].op != "Relu") return false;
    const ValueId y = graph_.nodes()[readers_[v][0]].outputs[0];
    return pattern_.HasOneReader(y) && Narrows(&graph_.nodes()[readers_[y][0]]);
  }

  const Graph& graph_;
  const Pattern pattern_;
  const std::vector<std::vector<int32_t>> readers_;
};

}  // namespace

absl::StatusOr<Graph> SkipRounding(const Graph& graph) { return RoundingSkipper(graph).Run(); }

}  // namespace onnxtrain::cpu
