#include "frontend/onnx/import/stages.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import/control_flow.h"
#include "frontend/onnx/import/import_state.h"
#include "frontend/onnx/import/scope.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {
namespace {

// The context of one node for the import function of its operator. All arguments must outlive it.
class NodeImportContext : public ImportContext {
 public:
  NodeImportContext(ImportState& state, const ImportScope& scope, const ParsedNode& parsed, const NodeView& view);

  const HostTensor* Known(size_t i) override { return state_.known.Find(in(i)); }
  Val AttributeWeight(std::string_view attribute, HostTensor tensor) override;
  void SetLogits(Val prediction, Val logits) override;
  Val FindLogits(Val prediction) override;
  Val AsFloatWeight(size_t i, const HostTensor& value) override;
  absl::StatusOr<Val> AsState(size_t i) override;
  void UpdateState(Val state, Val value, double momentum) override;
  Val RandomKey() override;
  int64_t RandomStream() override;

 private:
  absl::Status CheckUpdate(const ImportWeight& weight, Val value) const;

  ImportState& state_;
  const ImportScope& scope_;
  const ParsedNode& parsed_;
};

// Returns 31 bits of the FNV-1a hash.
int64_t HashName(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash >> 1;
}

NodeImportContext::NodeImportContext(ImportState& state, const ImportScope& scope, const ParsedNode& parsed,
                                     const NodeView& view)
    : state_(state), scope_(scope), parsed_(parsed) {
  const ImportOptions& options = state.options;
  node_ = &view;
  b_ = &state.builder;
  training = options.training;
  batch_norm_frozen = options.batch_norm_frozen || HasFrozenScale(options, parsed);
  dropout = options.dropout;
  float_type = options.float_type;
  conformance = options.conformance;
}

Val NodeImportContext::AttributeWeight(std::string_view attribute, HostTensor tensor) {
  if (!scope_.is_top() || conformance) return b_->Constant(std::move(tensor));
  return state_.weights.AddFromAttribute(parsed_, attribute, tensor);
}

void NodeImportContext::SetLogits(Val prediction, Val logits) {
  if (prediction.valid() && logits.valid()) state_.effects.logits[prediction.id()] = logits.id();
}

Val NodeImportContext::FindLogits(Val prediction) {
  const auto& logits = state_.effects.logits;
  const auto it = prediction.valid() ? logits.find(prediction.id()) : logits.end();
  return it == logits.end() ? Val() : b_->Wrap(it->second);
}

Val NodeImportContext::AsFloatWeight(size_t i, const HostTensor& value) {
  return has(i) && !conformance ? state_.weights.AddDequantized(in(i), value, parsed_) : Val();
}

absl::StatusOr<Val> NodeImportContext::AsState(size_t i) {
  ImportWeight* weight = state_.weights.Find(in(i));
  if (weight == nullptr && has(i) && !training) return in(i);  // computed statistics cannot be updated
  if (weight == nullptr) return Invalid("input ", i, " must be an initializer");
  weight->state = true;
  return in(i);
}

absl::Status NodeImportContext::CheckUpdate(const ImportWeight& weight, Val value) const {
  if (scope_.conditional)
    return absl::UnimplementedError(
        StrCat("updates '", weight.name, "' under a condition that is known only at run time"));
  if (weight.updated) return Invalid("updates '", weight.name, "', which another node updates too");
  const Type& type = state_.graph.type(weight.value);
  if (type == value.type()) return absl::OkStatus();
  return Invalid("replaces '", weight.name, "' of type ", ToString(type), " by ", ToString(value.type()));
}

void NodeImportContext::UpdateState(Val state, Val value, double momentum) {
  ImportWeight* weight = training && value.valid() ? state_.weights.Find(state) : nullptr;
  if (weight == nullptr) return;
  if (absl::Status status = CheckUpdate(*weight, value); !status.ok()) {
    b_->Fail(std::move(status));
    return;
  }
  weight->updated = true;
  state_.effects.updates.push_back({state.id(), value.id(), momentum});
}

Val NodeImportContext::RandomKey() {
  Val& key = state_.effects.random_key;
  if (key.valid()) return key;
  std::string name = "random_key";
  while (state_.graph.FindInput(name) != nullptr || state_.model.graph.initializers.count(name) > 0) name += "_";
  return key = b_->Input(InputKind::kFeed, name, {DType::kUInt32, {4}});
}

int64_t NodeImportContext::RandomStream() { return HashName(b_->source()); }

absl::Status CheckArity(const std::vector<Val>& inputs, const OnnxOp& op) {
  const auto count = static_cast<int>(inputs.size());
  if (count < op.min_inputs || count > op.max_inputs)
    return Invalid("has ", count, " inputs, which is too ", count < op.min_inputs ? "few" : "many");
  for (int i = 0; i < op.min_inputs; ++i) {
    if (!inputs[i].valid()) return Invalid("input ", i, " is missing");
  }
  return absl::OkStatus();
}

// Returns the node's inputs, without absent ones at the end.
absl::StatusOr<std::vector<Val>> FindOperands(SymbolTable& symbols, ImportScope& scope, const ParsedNode& node) {
  std::vector<Val> operands;
  for (const std::string& name : node.inputs) {
    const std::optional<Val> v = name.empty() ? Val() : symbols.FindTensor(scope, name, node);
    if (!v) return AlreadyReported();
    operands.push_back(*v);
  }
  while (!operands.empty() && !operands.back().valid()) operands.pop_back();
  return operands;
}

absl::StatusOr<NodeView> ViewNode(ImportState& state, ImportScope& scope, const ParsedNode& node, const OnnxOp& op) {
  NodeView view{.domain = op.domain,
                .op_type = node.op_type,
                .name = state.builder.source(),
                .version = 1,
                .num_outputs = static_cast<int>(node.outputs.size()),
                .strings = node.strings};
  if (auto opset = scope.opsets->find(node.domain); opset != scope.opsets->end()) {
    view.version = static_cast<int>(opset->second.newest);
    view.older_version = opset->second.oldest;
  }
  ASSIGN_OR_RETURN(view.inputs, FindOperands(state.symbols, scope, node));
  RETURN_IF_ERROR(CheckArity(view.inputs, op));
  for (const std::string& name : node.outputs)
    view.used.push_back(!name.empty() && (!scope.is_top() || state.live.IsRead(name)));
  ASSIGN_OR_RETURN(view.attrs, ResolveAttrs(scope, node));
  state.types.MapAttrs(node, &view.attrs);
  // A padding row that was inferred without metadata is trained if the user names the weights to train.
  if (!state.options.constant_factors && node.fx == nullptr) view.attrs.Erase(kPaddingRow);
  return view;
}

}  // namespace

bool HasFrozenScale(const ImportOptions& options, const ParsedNode& node) {
  return node.op_type == "BatchNormalization" && node.inputs.size() > 1 &&
         options.frozen_scales.count(node.inputs[1]) > 0;
}

ImportValuesOr ImportOperator(ImportState& state, ImportScope& scope, const ParsedNode& node, const OnnxOp& op) {
  ASSIGN_OR_RETURN(NodeView view, ViewNode(state, scope, node, op));
  state.known.Update();  // registers initializers that ViewNode has created
  RETURN_IF_ERROR(state.batch_unfixer.UnfixNode(node, &view.inputs, &view.attrs));
  NodeImportContext context(state, scope, node, view);
  ASSIGN_OR_RETURN(std::vector<Val> results, op.import(context));
  RETURN_IF_ERROR(state.builder.status());
  state.effects.mode_matters |= context.mode_matters();
  if (context.opset_matters())
    return Invalid("means one thing in opset ", view.version, " and another in ", *view.older_version,
                   ", and the file imports both");
  results.resize(std::max(results.size(), node.outputs.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (view.used[i] && !results[i].valid()) return absl::UnimplementedError(StrCat("output ", i, " is not supported"));
  }
  return ImportValues(results.begin(), results.end());
}

namespace {

// Returns the tensor of a name; fails if its producer has failed or it is not a tensor.
using FindTensorFn = std::function<absl::StatusOr<Val>(const std::string&)>;

struct GradientSpec {
  std::vector<std::string> names;  // xs, then zs
  size_t differentiated = 0;       // the number of xs
};

absl::StatusOr<GradientSpec> ReadSpec(const ParsedNode& node) {
  GradientSpec spec;
  for (std::string_view list : {"xs", "zs"}) {
    if (auto it = node.strings.find(std::string(list)); it != node.strings.end())
      spec.names.insert(spec.names.end(), it->second.begin(), it->second.end());
    if (list == "xs") spec.differentiated = spec.names.size();
  }
  if (spec.differentiated == 0) return Invalid("attribute 'xs' names no value");
  if (spec.names.size() != node.inputs.size())
    return Invalid("has ", node.inputs.size(), " inputs for the ", spec.names.size(), " values of xs and zs");
  if (node.outputs.size() > spec.differentiated)
    return Invalid("has ", node.outputs.size(), " outputs for ", spec.differentiated, " values of xs");
  return spec;
}

// Appends a clone of `node` that reads the replacements of its inputs, and maps its outputs to the clone's.
void CloneWith(Graph* graph, Node node, std::map<ValueId, ValueId>* replaced) {
  bool differs = false;
  for (ValueId& v : node.inputs) {
    const auto it = v == kNoValue ? replaced->end() : replaced->find(v);
    if (it == replaced->end()) continue;
    v = it->second;
    differs = true;
  }
  if (!differs) return;
  std::vector<Type> types;
  for (ValueId v : node.outputs) types.push_back(graph->type(v));
  const ValueIds outputs =
      graph->AddNode(node.op, std::move(node.inputs), node.attrs, std::move(types), node.source).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) replaced->emplace(node.outputs[i], outputs[i]);
}

// Clones the nodes on paths from the keys of `replaced` to `target`; returns the clone of the target.
ValueId CloneFor(Graph* graph, std::map<ValueId, ValueId> replaced, ValueId target) {
  const size_t count = graph->nodes().size();
  for (size_t n = 0; n < count; ++n) CloneWith(graph, graph->nodes()[n], &replaced);
  const auto it = replaced.find(target);
  return it == replaced.end() ? target : it->second;
}

// Imports ai.onnx.preview.training.Gradient: differentiates y with respect to the values named by the attribute xs,
// where the inputs provide the values of xs and zs (usually these values themselves). Returns one gradient for each
// output.
ImportValuesOr ImportGradientNode(const ParsedNode& node, Builder* builder, const FindTensorFn& find) {
  ASSIGN_OR_RETURN(const GradientSpec spec, ReadSpec(node));
  ASSIGN_OR_RETURN(const Val y, find(node.attrs.String("y")));
  if (!y.valid()) return Invalid("attribute 'y' names no value");
  std::map<ValueId, ValueId> replaced;
  std::vector<ValueId> wrt;
  for (size_t i = 0; i < spec.names.size(); ++i) {
    ASSIGN_OR_RETURN(const Val named, find(spec.names[i]));
    ASSIGN_OR_RETURN(const Val given, find(node.inputs[i]));
    if (!named.valid() || !given.valid()) return Invalid("input ", i, " is missing");
    if (!(named.type() == given.type()))
      return Invalid("input ", i, " is ", ToString(given.type()), " in place of ", ToString(named.type()));
    if (named.id() != given.id()) replaced[named.id()] = given.id();
    if (i < spec.differentiated) wrt.push_back(given.id());
  }
  Graph& graph = builder->graph();
  const ValueId target = replaced.empty() ? y.id() : CloneFor(&graph, std::move(replaced), y.id());
  ASSIGN_OR_RETURN(const auto gradients, Differentiate(&graph, target, wrt));
  ImportValues results;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const auto it = gradients.find(wrt[i]);
    results.emplace_back(it == gradients.end() ? ZerosLike(builder->Wrap(wrt[i])) : builder->Wrap(it->second));
  }
  return results;
}

// Nested function calls and nested loops multiply nodes.
constexpr int64_t kMaxExpandedNodes = 200'000;  // in addition to the nodes of the file
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
  // CheckOperators does not check bodies, so unsupported operators can get here.
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
  // Nested gradients double the nodes.
  RETURN_IF_ERROR(CountExpanded(static_cast<int64_t>(state_.graph.nodes().size()) - before));
  return gradients;
}

// Returns the weight of a node that stores one: a merged copy, or a filled weight. Returns nullopt for other nodes.
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
