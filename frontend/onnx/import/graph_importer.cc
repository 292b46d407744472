#include "frontend/onnx/import/graph_importer.h"

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import/gradient_node.h"
#include "frontend/onnx/import/operator_importer.h"
#include "frontend/onnx/import/sequence_ops.h"

namespace onnxtrain {
namespace {

// Functions that call functions multiply nodes, and so do loops in loops.
constexpr int64_t kMaxExpandedNodes = 200'000;  // beyond the file's own
constexpr size_t kMaxNodes = 1'000'000;         // of the graph

}  // namespace

absl::Status GraphImporter::ImportNodes(ImportScope& scope) {
  for (const ParsedNode& node : scope.graph->nodes) {
    if (scope.is_top() && !state_.live.Contains(node)) continue;
    RETURN_IF_ERROR(CheckCancelled());
    if (!scope.is_top()) RETURN_IF_ERROR(CountExpanded(1));
    state_.builder.set_source(scope.prefix + node.source);
    auto results = ImportNode(scope, node);
    absl::Status status = results.status();
    if (absl::Status built = state_.builder.TakeStatus(); status.ok()) status = built;
    if (!status.ok() && status != AlreadyReported()) state_.errors.Add(node, status, FindExtents(scope, node));
    state_.symbols.Bind(scope, node, status.ok() ? *results : ImportValues());
    state_.known.Update();
  }
  return absl::OkStatus();
}

std::vector<int64_t> GraphImporter::FindExtents(ImportScope& scope, const ParsedNode& node) {
  std::vector<int64_t> extents;
  for (const std::string& name : node.inputs) {
    const std::optional<ImportValue> value = name.empty() ? std::nullopt : state_.symbols.Find(scope, name, node);
    if (!value || !value->tensor.valid()) continue;
    const Type& type = value->tensor.type();
    const bool integers = IsInteger(type.dtype) && type.rank() < 2;
    const HostTensor* known = integers ? state_.known.Find(value->tensor) : nullptr;
    const std::vector<int64_t> found = known != nullptr ? known->ToInts() : type.shape;
    std::ranges::copy_if(found, std::back_inserter(extents), [](int64_t extent) { return extent > 0; });
  }
  return extents;
}

absl::Status GraphImporter::CountExpanded(int64_t nodes) {
  expanded_ += nodes;
  if (expanded_ <= kMaxExpandedNodes && state_.graph.nodes().size() <= kMaxNodes) return absl::OkStatus();
  return Invalid("expands to more than ", kMaxExpandedNodes, " nodes");
}

ImportValuesOr GraphImporter::ImportNode(ImportScope& scope, const ParsedNode& node) {
  if (IsConstantNode(node)) {
    ASSIGN_OR_RETURN(const Val v, state_.weights.ReadConstantNode(scope, node));
    return ImportValues{v};
  }
  if (!state_.symbols.CanRead(scope, node)) return AlreadyReported();
  ImportValues inputs = state_.symbols.FindInputs(scope, node);
  if (const ControlFn control = FindControl(node)) return ImportControl(control, scope, node, std::move(inputs));
  if (IsListOperator(node, inputs)) return ImportList(scope, node, inputs);
  if (IsGradientNode(node)) return ImportGradient(scope, node);
  ASSIGN_OR_RETURN(const std::optional<Val> weight, ImportHiddenWeight(scope, node));
  if (weight) return ImportValues{*weight};
  if (const OnnxOp* op = FindOnnxOp(node.domain, node.op_type)) return ImportOperator(state_, scope, node, *op);
  // The operators of bodies are looked at only when these are imported.
  const auto function = state_.model.functions.find({node.domain, node.op_type});
  if (function == state_.model.functions.end()) return absl::UnimplementedError("unsupported operator");
  return ImportCall(scope, node, function->second);
}

ImportValuesOr GraphImporter::ImportControl(ControlFn control, ImportScope& scope, const ParsedNode& node,
                                            ImportValues inputs) {
  ControlNode c{.node = node,
                .scope = scope,
                .inputs = std::move(inputs),
                .live = state_.live,
                .builder = state_.builder,
                .known = state_.known,
                .import_body = [&](BodyCall call) { return ImportBody(scope, node, std::move(call)); }};
  return control(c);
}

ImportValuesOr GraphImporter::ImportList(ImportScope& scope, const ParsedNode& node, const ImportValues& inputs) {
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  return ImportListOperator(node, attrs, inputs, &state_.builder, &state_.known);
}

ImportValuesOr GraphImporter::ImportGradient(ImportScope& scope, const ParsedNode& node) {
  const auto before = static_cast<int64_t>(state_.graph.nodes().size());
  ASSIGN_OR_RETURN(ImportValues gradients,
                   ImportGradientNode(node, &state_.builder, [&](const std::string& name) -> absl::StatusOr<Val> {
                     const std::optional<Val> v = state_.symbols.FindTensor(scope, name, node);
                     return v ? absl::StatusOr<Val>(*v) : AlreadyReported();
                   }));
  // Gradients of gradients double.
  RETURN_IF_ERROR(CountExpanded(static_cast<int64_t>(state_.graph.nodes().size()) - before));
  return gradients;
}

// A weight that exporters hide behind a node: a merged copy, or one that is filled.
absl::StatusOr<std::optional<Val>> GraphImporter::ImportHiddenWeight(ImportScope& scope, const ParsedNode& node) {
  if (!scope.is_top() || state_.options.conformance) return std::nullopt;
  if (const Val copy = state_.weights.SplitMergedCopy(node); copy.valid()) return copy;
  if (!state_.filled_weights.IsFilledWeight(node)) return std::nullopt;
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  const std::optional<Val> shape = state_.symbols.FindTensor(scope, node.inputs[0], node);
  ASSIGN_OR_RETURN(std::optional<HostTensor> filled,
                   state_.filled_weights.Fill(attrs, shape ? state_.known.Find(*shape) : nullptr));
  if (!filled) return std::nullopt;
  return state_.weights.Add(node.outputs[0], *std::move(filled), node);
}

ImportValues GraphImporter::FindOutputs(ImportScope& scope, size_t count, const ParsedNode& node) {
  ImportValues outputs;
  for (size_t i = 0; i < count; ++i) {
    outputs.push_back(state_.symbols.Find(scope, scope.graph->outputs[i].name, node).value_or(ImportValue()));
  }
  return outputs;
}

ImportValuesOr GraphImporter::ImportCall(ImportScope& scope, const ParsedNode& node, const ParsedFunction& function) {
  const ParsedGraph& graph = function.graph;
  if (node.inputs.size() > graph.inputs.size() || node.outputs.size() > graph.outputs.size())
    return Invalid("has more inputs or outputs than the function that it calls");
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  ImportScope inner{.graph = &graph,
                    .opsets = function.opsets.empty() ? scope.opsets : &function.opsets,
                    .call = &attrs,
                    .conditional = scope.conditional,
                    .prefix = StrCat(scope.prefix, node.source, "/")};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].empty()) inner.values[graph.inputs[i].name] = *state_.symbols.Find(scope, node.inputs[i], node);
  }
  RETURN_IF_ERROR(ImportNodes(inner));
  return FindOutputs(inner, node.outputs.size(), node);
}

ImportValuesOr GraphImporter::ImportBody(ImportScope& scope, const ParsedNode& node, BodyCall call) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, FindBody(node, call.attribute));
  if (call.inputs.size() != body->inputs.size())
    return Invalid("its ", call.attribute, " has ", body->inputs.size(), " inputs, expected ", call.inputs.size());
  RETURN_IF_ERROR(CountExpanded(1));
  const std::string source = state_.builder.source();
  ImportScope inner{.graph = body,
                    .parent = &scope,
                    .opsets = scope.opsets,
                    .call = scope.call,
                    .conditional = scope.conditional || call.conditional,
                    .prefix = StrCat(scope.prefix, node.source, "/", call.label, call.label.empty() ? "" : "/")};
  for (size_t i = 0; i < call.inputs.size(); ++i) inner.values[body->inputs[i].name] = std::move(call.inputs[i]);
  const size_t errors = state_.errors.size();
  RETURN_IF_ERROR(ImportNodes(inner));
  ImportValues results = FindOutputs(inner, body->outputs.size(), node);
  state_.builder.set_source(source);
  if (state_.errors.size() > errors) return AlreadyReported();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].valid())
      return Invalid("its ", call.attribute, " does not define '", Printable(body->outputs[i].name), "'");
  }
  return results;
}

}  // namespace onnxtrain
