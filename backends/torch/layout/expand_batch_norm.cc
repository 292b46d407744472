#include "backends/torch/layout/expand_batch_norm.h"

#include <numeric>
#include <optional>

#include "backends/promote_types.h"
#include "backends/torch/fuse/fuse_graph.h"
#include "frontend/ops/formula.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

using Vals = std::vector<Val>;

std::vector<int64_t> AxesBeforeChannels(const Val& x) {
  std::vector<int64_t> axes(x.rank() - 1);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

class Expansion {
 public:
  Expansion(Rewriter& r, const Node& node) : r_(r), node_(node) {}

  // Expands x, scale, bias → y, mean, rstd. Computes the variance from x − mean, which avoids cancellation.
  Vals Forward() {
    const Val scale = r_.Map(node_.inputs[1]), bias = r_.Map(node_.inputs[2]);
    const std::vector<int64_t> axes = AxesBeforeChannels(Wide(0));
    const Val mean = ReduceMean(Wide(0), axes, true);
    const Val difference = Wide(0) - mean;
    const Val rstd = Rsqrt(ReduceMean(difference * difference, axes, true) + node_.attrs.Float("epsilon"));
    return {(Wide(0) - mean) * rstd * scale + bias, Reshape(mean, scale.shape()), Reshape(rstd, scale.shape())};
  }

  // Expands dy, x, scale, mean, rstd → dx, dscale, dbias.
  Vals Backward() {
    const Val scale = r_.Map(node_.inputs[2]), mean = r_.Map(node_.inputs[3]), rstd = r_.Map(node_.inputs[4]);
    const std::vector<int64_t> axes = AxesBeforeChannels(Wide(0));
    const Val dy = Wide(0);  // shared by both sums, which one kernel computes
    const Val dbias = ReduceSum(dy, axes, false);
    const Val dscale = ReduceSum(dy * ((Wide(1) - mean) * rstd), axes, false);
    const double rows = static_cast<double>(Wide(0).type().elements()) / static_cast<double>(scale.type().elements());
    const Val common = (dbias + (Wide(1) - mean) * rstd * dscale) * (1 / rows);
    return {(Wide(0) - common) * rstd * scale, dscale, dbias};
  }

 private:
  // Returns operand i. If it is a Cast from half precision, adds another such Cast in every call, so that each kernel
  // that uses the operand reads half precision.
  Val Wide(size_t i) {
    const Val operand = r_.Map(node_.inputs[i]);
    const Graph& now = r_.b().graph();
    const Node* cast = now.producer(operand.id());
    if (cast == nullptr || cast->op != "Cast" || !IsHalf(now.type(cast->inputs[0]).dtype)) return operand;
    return Cast(r_.b().Wrap(cast->inputs[0]), operand.dtype());
  }

  Rewriter& r_;
  const Node& node_;
};

// Returns true if a generated kernel should sum the columns. `x` is the operand with the full shape.
bool SumsColumns(const Graph& graph, ValueId x) {
  const Type& type = graph.type(x);
  return IsFloat(type.dtype) && PaysToSumColumns(type.elements(), type.shape.back());
}

}  // namespace

absl::StatusOr<Graph> ExpandBatchNorms(const Graph& graph, std::vector<ValueId>* values) {
  const auto expand = [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    const bool gradient = node.op == "torch.NhwcBatchNormGrad";
    if ((!gradient && node.op != "torch.NhwcBatchNorm") || !SumsColumns(graph, node.inputs[0])) return std::nullopt;
    Expansion expansion(r, node);
    return gradient ? expansion.Backward() : expansion.Forward();
  };
  return Rewrite(graph, expand, nullptr, values);
}

}  // namespace onnxtrain::aten
