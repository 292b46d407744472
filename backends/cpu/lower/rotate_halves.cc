// Finds the rotation of rotary embeddings: the halves of each row, exchanged, one of them negated.
#include <algorithm>

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "frontend/base/status.h"
#include "frontend/passes/match.h"

namespace onnxtrain::cpu {
namespace {

// Part of the rows of a value along the last axis.
struct Half {
  ValueId of = kNoValue;
  int64_t start = 0;
  bool negated = false;
};

// Matches ±x[…, start:start+size]. A negation of bf16 may be computed in float32, which is exact.
Half FindHalf(const Pattern& pattern, ValueId v) {
  const Graph& graph = pattern.graph();
  Half half;
  const ValueId exact = pattern.BeforeCast(v, DType::kFloat32, DType::kBFloat16);
  if (const Node* negation = pattern.Producer(exact == kNoValue ? v : exact, "Neg")) {
    half.negated = true;
    v = exact == kNoValue ? negation->inputs[0] : SkipUpcast(pattern, negation->inputs[0]);
  }
  const Node* slice = pattern.Producer(v, "Slice");
  if (slice == nullptr) return {};
  const Type &whole = graph.type(slice->inputs[0]), &part = graph.type(v);
  Shape rest = whole.shape;
  rest.back() = part.shape.back();
  const auto steps = slice->attrs.Ints("steps");
  if (rest != part.shape || std::ranges::any_of(steps, [](int64_t step) { return step != 1; })) return {};
  half.of = slice->inputs[0];
  half.start = slice->attrs.Ints("starts").back();
  return half;
}

std::optional<std::vector<Val>> Rotate(const Pattern& pattern, Rewriter& r, const Node& node) {
  const Graph& graph = pattern.graph();
  const Type& type = graph.type(node.outputs[0]);
  if (node.op != "Concat" || node.inputs.size() != 2 || node.attrs.Int("axis") != type.rank() - 1) return std::nullopt;
  const Half first = FindHalf(pattern, node.inputs[0]), second = FindHalf(pattern, node.inputs[1]);
  const int64_t size = type.shape.back();
  const bool rotates = first.of != kNoValue && first.of == second.of && graph.type(first.of) == type &&
                       type.layout == Layout::kRowMajor && IsMultiplied(type.dtype) && size % 2 == 0 &&
                       size <= kMaxRotated && graph.type(node.inputs[0]).shape.back() == size / 2 &&
                       first.start == size / 2 && second.start == 0 && first.negated != second.negated;
  if (!rotates) return std::nullopt;
  const Val y = r.b().Op(std::string(kRotateHalves), {Cast(r.Map(first.of), DType::kFloat32)},
                         {{"size", size}, {"negates_second", static_cast<int64_t>(second.negated)}});
  for (int32_t n : pattern.users(node.outputs[0])) {
    const ValueId wide = graph.nodes()[n].outputs[0];
    if (pattern.BeforeCast(wide, DType::kBFloat16, DType::kFloat32) != kNoValue) r.Set(wide, y);
  }
  return std::vector<Val>{Cast(y, type.dtype)};
}

}  // namespace

absl::StatusOr<Graph> FindRotations(const Graph& graph) {
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) { return Rotate(pattern, r, node); });
}

}  // namespace onnxtrain::cpu
