#include "backends/torch/fuse/fuse_graph.h"

#include "backends/promote_types.h"
#include "backends/torch/kernels/element_functions.h"
#include "frontend/base/status.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/row.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/pass.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

absl::StatusOr<std::vector<Type>> FusedTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Graph body, ParseBody(c.attrs));
  if (body.inputs().size() != c.inputs.size()) return absl::InvalidArgumentError("the body has other inputs");
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i] == nullptr || *c.inputs[i] != body.type(body.inputs()[i].value))
      return absl::InvalidArgumentError(StrCat("the body has another input ", i));
  }
  std::vector<Type> types;
  for (const GraphOutput& output : body.outputs()) types.push_back(body.type(output.value));
  return types;
}

// Returns true if the operator is not decomposed further: it has an element function, is a reduction, or has no
// decomposition.
bool IsPrimitive(const Node& node) {
  return FindElementFunction(node) != nullptr || FindOp(node.op)->reduction || FindOp(node.op)->decompose == nullptr;
}

// Expands Softmax and LogSoftmax over x − max(x), which keeps the exponentials finite. Returns nullopt for other
// operators.
std::optional<std::vector<Val>> ExpandSoftmax(Rewriter& r, const Node& node) {
  if (node.op != "Softmax" && node.op != "LogSoftmax") return std::nullopt;
  const Val x = r.Map(node.inputs[0]);
  const std::vector<int64_t> axes = {node.attrs.Int("axis")};
  const Val shifted = x - r.b().Op("ReduceMax", {x}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  const Val e = Exp(shifted), sum = ReduceSum(e, axes);
  return std::vector<Val>{node.op == "Softmax" ? e / sum : shifted - Log(sum)};
}

}  // namespace

void RegisterFusedOp() {
  static const auto* rows =
      new std::vector<OpRow>{{.name = kFusedOp,
                              .inputs = {0, Arity::kMany},
                              .outputs = kOutputsFromAttr,
                              .attrs = {{"body", std::string(), true}, {"num_outputs", int64_t{1}, true}},
                              .infer = FusedTypes,
                              .elementwise = true}};  // kernels read each element before they overwrite it: generate.h
  RegisterOps(*rows);
}

Attrs MakeFusedAttrs(const Graph& body) {
  return {{"body", Print(body)}, {"num_outputs", static_cast<int64_t>(body.outputs().size())}};
}

absl::StatusOr<Graph> ParseBody(const Attrs& attrs) {
  ASSIGN_OR_RETURN(Graph body, Parse(attrs.String("body"), {.max_splat_bytes = 1 << 16}));
  RETURN_IF_ERROR(Verify(body));
  return body;
}

absl::StatusOr<Graph> ExpandBody(const Graph& body) {
  const auto computes = [](const Graph&, const Node& n) {
    return n.op != "Cast" && !FindOp(n.op)->view && !IsConstant(n);
  };
  const auto is_composite = [](const Graph&, const Node& n) { return !IsPrimitive(n); };
  const Pass passes[] = {{"promote_half", [&](const Graph& g) { return PromoteHalfToFloat(g, computes); }},
                         {"decompose", [&](const Graph& g) { return DecomposeNodes(g, is_composite); }},
                         {"expand_softmax", [](const Graph& g) { return Rewrite(g, ExpandSoftmax); }},
                         {"dce", [](const Graph& g) { return Dce(g); }}};
  return RunPasses(body, passes);
}

}  // namespace onnxtrain::aten
