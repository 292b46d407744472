#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"

namespace onnxtrain::cpu {

bool IsOnlyRounded(const Pattern& pattern, ValueId v) {
  return !pattern.IsOutput(v) && !pattern.users(v).empty() && std::ranges::all_of(pattern.users(v), [&](int32_t n) {
    const Node& user = pattern.graph().nodes()[n];
    return pattern.BeforeCast(user.outputs[0], DType::kFloat32, DType::kBFloat16) != kNoValue;
  });
}

ValueId BeforeCasts(const Pattern& pattern, ValueId v) {
  const Graph& graph = pattern.graph();
  const Node* cast = pattern.Producer(v, "Cast");
  const bool skips =
      cast != nullptr && IsMultiplied(graph.type(v).dtype) && IsMultiplied(graph.type(cast->inputs[0]).dtype);
  return skips ? BeforeCasts(pattern, cast->inputs[0]) : v;
}

ValueId SkipUpcast(const Pattern& pattern, ValueId v) {
  const ValueId narrow = pattern.BeforeCast(v, DType::kBFloat16, DType::kFloat32);
  return narrow == kNoValue ? v : narrow;
}

bool IsPlainSum(const Graph& graph, const Node& node) {
  const Type& type = graph.type(node.outputs[0]);
  return node.op == "Add" && type.dtype == DType::kFloat32 && graph.type(node.inputs[0]) == type &&
         graph.type(node.inputs[1]) == type;
}

ValueId OtherOperand(const Node& sum, ValueId v) { return sum.inputs[sum.inputs[0] == v ? 1 : 0]; }

}  // namespace onnxtrain::cpu
