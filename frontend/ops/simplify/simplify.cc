#include "frontend/ops/simplify/simplify.h"

#include <cstring>

namespace onnxtrain {

Val SimplifyContext::Fit(Val v) const {
  if (!v.valid() || v.dtype() != out.dtype) return Val();
  return BroadcastShapes(v.shape(), out.shape) == out.shape ? Expand(v, out.shape) : Val();
}

Val SimplifyContext::Try(const std::vector<Val>& operands, const Shape& shape) const {
  std::vector<const Type*> types;
  for (Val v : operands) types.push_back(v ? &v.type() : nullptr);
  Attrs checked = attrs();
  const auto inferred = InferTypes(node.op, types, checked);
  return inferred.ok() && inferred->front() == Type{out.dtype, shape} ? b.Op(node.op, operands, attrs()) : Val();
}

Val MatchInput(Val v, std::string_view op, size_t i) {
  const Node* node = v.valid() ? v.b().graph().producer(v.id()) : nullptr;
  return node != nullptr && node->op == op && i < node->inputs.size() ? v.b().Wrap(node->inputs[i]) : Val();
}

Attrs ProducerAttrs(Val v) {
  const Node* node = v.b().graph().producer(v.id());
  return node == nullptr ? Attrs() : node->attrs;
}

std::optional<double> FindSplat(const Graph& graph, ValueId v) {
  const Node* node = v == kNoValue ? nullptr : graph.producer(v);
  if (node != nullptr && node->inputs.size() == 1 && (node->op == "Expand" || FindOp(node->op)->view))
    return FindSplat(graph, node->inputs[0]);
  const HostTensor* t = graph.FindConstant(v);
  if (t == nullptr || t->size() == 0) return std::nullopt;
  const auto bytes = t->bytes();
  const size_t size = DTypeSize(t->dtype());
  if (std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) != 0) return std::nullopt;
  return t->At(0);
}

bool IsSplat(Val v, double value) { return FindSplat(v) == value; }

}  // namespace onnxtrain
