#include <algorithm>

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "frontend/base/strings.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

Vals Fold(Rewriter& r, const Pattern& pattern, const Node& node) {
  const std::string op = StrCat("cpu.", node.op);
  Perm perms;
  const auto add = [&](const Perm& perm) { perms.insert(perms.end(), perm.begin(), perm.end()); };
  Vals operands;
  const size_t mask = MaskIndex(op);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    ValueId v = node.inputs[i];
    if (i < mask) add(SkipTransposes(pattern, &v));
    operands.push_back(i == mask ? Cast(r.Map(v), DType::kFloat32) : r.Map(v));
  }
  std::vector<bool> transposed;
  for (ValueId v : node.outputs) {
    const auto perm = FindUserPerm(pattern, v);
    add(perm.value_or(IdentityPerm(r.from().type(v).rank())));
    transposed.push_back(perm.has_value());
  }
  Attrs attrs = node.attrs;
  attrs.Set("perms", perms);
  Vals outputs = r.b().Ops(op, operands, std::move(attrs));
  if (!r.b().status().ok()) return outputs;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!transposed[o]) continue;
    for (int32_t n : pattern.users(node.outputs[o])) r.Set(r.from().nodes()[n].outputs[0], outputs[o]);
    outputs[o] = Val();
  }
  return outputs;
}

}  // namespace

bool CanFoldHeadTransposes(const Graph& graph, const Node& node) {
  if (node.op != "Attention" && node.op != "AttentionGrad") return false;
  const DType dtype = graph.type(node.inputs[0]).dtype;
  const bool takes = dtype == DType::kFloat32 || (dtype == DType::kBFloat16 && HasBFloat16());
  const auto is_empty = [&](ValueId v) { return v != kNoValue && graph.type(v).elements() == 0; };
  return takes && std::none_of(node.inputs.begin(), node.inputs.end(), is_empty);
}

absl::StatusOr<Graph> FoldHeadTransposes(const Graph& graph) {
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    return CanFoldHeadTransposes(graph, node) ? std::optional(Fold(r, pattern, node)) : std::nullopt;
  });
}

}  // namespace onnxtrain::cpu
