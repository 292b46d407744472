#include "optim/step/gradient_scaling.h"

#include <limits>
#include <vector>

namespace onnxtrain {
namespace {

Val L2Norm(Val x, const std::vector<int64_t>& axes) { return Sqrt(ReduceSum(x * x, axes)); }

}  // namespace

Val ClipAdaptively(Val gradient, Val weight, double ratio, int64_t axis) {
  std::vector<int64_t> axes;  // empty: all
  for (int64_t a = 0; weight.rank() > 1 && a < weight.rank(); ++a) {
    if (a != axis) axes.push_back(a);
  }
  const Val most = Max(L2Norm(weight, axes), 1e-3) * ratio, norm = L2Norm(gradient, axes);
  const Val factor = Where(Less(norm, most), norm.b().Scalar(norm.dtype(), 1), most / Max(norm, 1e-6));
  return gradient * factor;
}

std::map<std::string, int64_t> OutputAxes(const Graph& graph) {
  std::map<std::string, int64_t> axes;
  for (const Node& node : graph.nodes()) {
    if (node.op != "MatMul" || !graph.IsInput(node.inputs[1]) || node.attrs.Int("trans_b") != 0) continue;
    const ValueId weight = node.inputs[1];
    if (graph.type(weight).rank() == 2) axes[graph.inputs()[graph.value(weight).index].name] = 1;
  }
  return axes;
}

LossScale NextLossScale(const LossScaleSpec& spec, const LossScale& now, Val finite) {
  if (!spec.dynamic) return now;
  Builder& b = now.scale.b();
  const Val zero = b.Scalar(DType::kInt64, 0), applied = now.applied + 1.0;
  const Val due = Equal(applied, b.Scalar(DType::kInt64, static_cast<double>(spec.interval)));
  const Val grown = now.scale * spec.growth;
  const Val infinity = b.Scalar(now.scale.dtype(), std::numeric_limits<double>::infinity());
  const Val larger = Where(Less(grown, infinity), grown, now.scale);
  return {.scale = Where(finite, Where(due, larger, now.scale), now.scale * spec.backoff),
          .applied = Where(finite, Where(due, zero, applied), zero)};
}

}  // namespace onnxtrain
