#include "frontend/onnx/importer.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {
namespace {

constexpr size_t kFoldLimit = size_t{16} << 20;       // bytes of one folded constant
constexpr int64_t kMaxExpandedNodes = 200'000;        // beyond the file's own: functions that call functions multiply
constexpr size_t kMaxNodes = 1'000'000;               // of the canonical graph
constexpr size_t kMaxReported = 20;                   // errors in one message

bool IsIdentity(const ParsedNode& node) { return node.domain.empty() && node.op_type == "Identity"; }

std::string OpName(const ParsedNode& node) {
  return Printable(StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type));
}

}  // namespace

Importer::Importer(const OnnxModel& model, const ImportOptions& options)
    : file_(model), model_(model.parsed()), options_(options), builder_(&graph_) {
  root_.graph = &model_.graph;
  root_.opsets = &model_.opsets;
  // Conformance cases are to be computed by the backend, constants or not.
  if (!options.conformance) builder_.set_fold_limit(kFoldLimit);
}

absl::Status Importer::Survey() {
  ChooseOutputs();
  MarkNeeded();
  return CheckOperators();
}

absl::StatusOr<ImportedModel> Importer::Run() {
  RETURN_IF_ERROR(Survey());
  RETURN_IF_ERROR(CreateFeeds());
  RETURN_IF_ERROR(ImportNodes(root_));
  RETURN_IF_ERROR(Collected());
  RETURN_IF_ERROR(BindOutputs());
  RETURN_IF_ERROR(CheckThawedOutputs());
  DecideKinds();
  MakeNotes();
  return Finish();
}

// Labels that are strings cannot be computed, nor trained on: they are left away where the model gives more.
void Importer::ChooseOutputs() {
  outputs_ = options_.outputs.empty() ? model_.outputs : options_.outputs;
  for (const ParsedValue& output : model_.graph.outputs) {
    if (!options_.outputs.empty() || outputs_.size() < 2 || output.kind != "tensor of string") continue;
    outputs_.erase(std::find(outputs_.begin(), outputs_.end(), output.name));
    notes_.push_back(StrCat("output '", Printable(output.name), "' is of strings and left away"));
  }
}

// Walks the sorted nodes backwards from the outputs.
void Importer::MarkNeeded() {
  needed_names_.insert(outputs_.begin(), outputs_.end());
  const auto& nodes = model_.graph.nodes;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const bool needed = std::any_of(node->outputs.begin(), node->outputs.end(),
                                    [&](const std::string& name) { return !name.empty() && needed_names_.count(name) > 0; });
    if (!needed) continue;
    needed_nodes_.insert(&*node);
    for (const std::string& name : node->outputs) producers_[name] = &*node;
    for (const auto* names : {&node->inputs, &node->captured}) {
      for (const std::string& name : *names) {
        if (name.empty()) continue;
        needed_names_.insert(name);
        readers_[name].push_back(&*node);
      }
    }
  }
  for (auto& [name, readers] : readers_) std::reverse(readers.begin(), readers.end());
}

// Operators that the importer itself takes care of.
bool Importer::IsBuiltIn(const ParsedNode& node) {
  return FindControl(node) != nullptr || IsListOperator(node) || AsksForGradient(node) || (node.domain.empty() && node.op_type == "Constant");
}

// Collects every operator that nothing here can import, also within the functions that are called.
absl::Status Importer::CheckOperators() {
  std::map<std::string, std::vector<std::string>> unsupported;
  std::set<std::pair<std::string, std::string>> visited;
  auto visit = [&](auto& self, const std::vector<ParsedNode>& nodes, bool all) -> void {
    for (const ParsedNode& node : nodes) {
      if ((!all && needed_nodes_.count(&node) == 0) || IsBuiltIn(node)) continue;
      if (FindOnnxOp(node.domain, node.op_type) != nullptr) continue;
      auto function = model_.functions.find({node.domain, node.op_type});
      if (function == model_.functions.end()) {
        unsupported[OpName(node)].push_back(Printable(node.source));
      } else if (visited.insert(function->first).second) {
        self(self, function->second.graph.nodes, true);
      }
    }
  };
  visit(visit, model_.graph.nodes, false);
  if (unsupported.empty()) return absl::OkStatus();
  std::vector<std::string> parts;
  for (const auto& [op, nodes] : unsupported) {
    std::vector<std::string> shown(nodes.begin(), nodes.begin() + std::min<size_t>(nodes.size(), 3));
    parts.push_back(StrCat(op, " (", nodes.size(), ": '", absl::StrJoin(shown, "', '"), nodes.size() > 3 ? "', …)" : "')"));
  }
  return absl::UnimplementedError(StrCat("unsupported operators: ", absl::StrJoin(parts, ", ")));
}

absl::Status Importer::ImportNodes(ImportScope& scope) {
  for (const ParsedNode& node : scope.graph->nodes) {
    if (scope.graph == &model_.graph && needed_nodes_.count(&node) == 0) continue;
    const bool own = scope.graph == &model_.graph;
    if (!own) RETURN_IF_ERROR(CountExpanded());
    builder_.set_source(scope.prefix + node.source);
    absl::Status status = ImportNode(scope, node);
    if (absl::Status built = builder_.TakeStatus(); status.ok()) status = built;
    if (!status.ok()) {
      if (status != AlreadyReported()) Report(node, status);
      Bind(scope, node, {});
    }
    ExtendFed();
  }
  return absl::OkStatus();
}

// Functions that call functions multiply, and so do loops in loops.
absl::Status Importer::CountExpanded() {
  if (++nodes_expanded_ <= kMaxExpandedNodes && graph_.nodes().size() <= kMaxNodes) return absl::OkStatus();
  return Invalid("expands to more than ", kMaxExpandedNodes, " nodes");
}

absl::Status Importer::ImportNode(ImportScope& scope, const ParsedNode& node) {
  if (node.domain.empty() && node.op_type == "Constant") return ImportConstant(scope, node);
  for (const auto* names : {&node.inputs, &node.captured}) {
    for (const std::string& name : *names) {
      // A consequence of an error that has been reported.
      if (!name.empty() && !LookupAny(scope, name, node)) return Bind(scope, node, {}), absl::OkStatus();
    }
  }
  const std::vector<ImportValue> inputs = InputsOf(scope, node);
  if (const ControlFn control = FindControl(node)) {
    ASSIGN_OR_RETURN(const std::vector<ImportValue> results, (this->*control)(scope, node, inputs));
    return Bind(scope, node, results), absl::OkStatus();
  }
  if (const bool of_list = !inputs.empty() && inputs[0].list != nullptr; IsListOperator(node) || (of_list && IsIdentity(node))) {
    ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
    ASSIGN_OR_RETURN(const std::vector<ImportValue> results, ImportListOperator(node, attrs, inputs));
    return Bind(scope, node, results), absl::OkStatus();
  }
  if (AsksForGradient(node)) {
    // Gradients of gradients double.
    const auto before = static_cast<int64_t>(graph_.nodes().size());
    RETURN_IF_ERROR(ImportGradient(scope, node));
    nodes_expanded_ += static_cast<int64_t>(graph_.nodes().size()) - before;
    return nodes_expanded_ > kMaxExpandedNodes ? Invalid("expands to more than ", kMaxExpandedNodes, " nodes") : absl::OkStatus();
  }
  if (ImportSharedIdentity(scope, node)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool filled, ImportFilledWeight(scope, node));
  if (filled) return absl::OkStatus();
  if (const OnnxOp* op = FindOnnxOp(node.domain, node.op_type)) return ImportOperator(scope, node, *op);
  auto function = model_.functions.find({node.domain, node.op_type});
  // Branches of an If are looked at only when they are taken.
  if (function == model_.functions.end()) return absl::UnimplementedError("unsupported operator");
  return ImportCall(scope, node, function->second);
}

absl::Status Importer::ImportCall(ImportScope& scope, const ParsedNode& node, const ParsedFunction& function) {
  const ParsedGraph& graph = function.graph;
  if (node.inputs.size() > graph.inputs.size() || node.outputs.size() > graph.outputs.size()) {
    return Invalid("has more inputs or outputs than the function that it calls");
  }
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  ImportScope inner{.graph = &graph, .opsets = function.opsets.empty() ? scope.opsets : &function.opsets, .call = &attrs,
                    .prefix = StrCat(scope.prefix, node.source, "/")};
  std::unordered_set<std::string> absent;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const bool given = i < node.inputs.size() && !node.inputs[i].empty();
    if (given) inner.values[graph.inputs[i].name] = *LookupAny(scope, node.inputs[i], node);
  }
  RETURN_IF_ERROR(ImportNodes(inner));
  std::vector<ImportValue> results;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    results.push_back(LookupAny(inner, graph.outputs[i].name, node).value_or(ImportValue()));
  }
  return Bind(scope, node, results), absl::OkStatus();
}

void Importer::Bind(ImportScope& scope, const ParsedNode& node, const std::vector<ImportValue>& results) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const ImportValue value = i < results.size() ? results[i] : ImportValue();
    scope.values[node.outputs[i]] = value;
    if (const Val v = value.tensor; v.valid() && graph_.value(v.id()).name.empty()) graph_.SetValueName(v.id(), scope.prefix + node.outputs[i]);
  }
}

std::optional<ImportValue> Importer::LookupAny(ImportScope& scope, const std::string& name, const ParsedNode& reader) {
  for (ImportScope* at = &scope; at != nullptr; at = at->parent) {
    if (auto it = at->values.find(name); it != at->values.end()) {
      return it->second.valid() ? std::optional<ImportValue>(it->second) : std::nullopt;
    }
    auto initializer = at->graph->initializers.find(name);
    if (initializer != at->graph->initializers.end()) {
      const Val v = InitializerValue(*at, name, initializer->second, reader);
      return at->values[name] = v;
    }
    if (auto opaque = at->graph->opaque.find(name); opaque != at->graph->opaque.end()) {
      Report(reader, absl::UnimplementedError(StrCat("initializer '", Printable(name), "' is a tensor of ", opaque->second)));
      at->values[name] = Val();
      return std::nullopt;
    }
  }
  return ImportValue();  // a function's input that the caller leaves away
}

std::optional<Val> Importer::Lookup(ImportScope& scope, const std::string& name, const ParsedNode& reader) {
  const std::optional<ImportValue> value = LookupAny(scope, name, reader);
  if (!value) return std::nullopt;
  if (value->list == nullptr) return value->tensor;
  Report(reader, Invalid("reads '", Printable(name), "', which is ", value->list->form.optional ? "an optional" : "a sequence",
                         ", as a tensor"));
  return std::nullopt;
}

std::vector<ImportValue> Importer::InputsOf(ImportScope& scope, const ParsedNode& node) {
  std::vector<ImportValue> inputs;
  for (const std::string& name : node.inputs) inputs.push_back(name.empty() ? ImportValue() : *LookupAny(scope, name, node));
  return inputs;
}

void Importer::Report(const ParsedNode& node, const absl::Status& status) {
  if (error_code_ == absl::StatusCode::kOk) error_code_ = status.code();
  std::string message(ToStd(status.message()));
  // The builder's own errors bear the canonical operator's tag, with the same source.
  if (message.rfind("[", 0) != 0) message = NodeTag(node.op_type, node.source) + message;
  errors_.push_back(std::move(message));
}

absl::Status Importer::Collected() const {
  if (errors_.empty()) return absl::OkStatus();
  std::vector<std::string> shown(errors_.begin(), errors_.begin() + std::min(errors_.size(), kMaxReported));
  if (errors_.size() > shown.size()) shown.push_back(StrCat("and ", errors_.size() - shown.size(), " more"));
  return absl::Status(error_code_, absl::StrJoin(shown, "; "));
}

absl::Status Importer::BindOutputs() {
  static const ParsedNode kNobody{.op_type = "the model", .source = "outputs"};
  std::set<std::string> seen;
  for (const std::string& name : outputs_) {
    if (!seen.insert(name).second) return Invalid("output '", Printable(name), "' is asked for twice");
    const std::optional<ImportValue> v = LookupAny(root_, name, kNobody);
    RETURN_IF_ERROR(Collected());
    if (!v || !v->valid()) return Invalid("there is no value '", Printable(name), "' to make an output of");
    RETURN_IF_ERROR(BindOutput(name, *v));
  }
  ExtendFed();
  return absl::OkStatus();
}

absl::Status Importer::BindOutput(const std::string& name, const ImportValue& value) {
  std::vector<std::pair<std::string, Val>> parts;
  if (value.list == nullptr) parts.emplace_back(name, value.tensor);
  for (size_t i = 0; value.list != nullptr && i < value.list->elements.size(); ++i) {
    parts.emplace_back(ElementName(name, i), value.list->elements[i]);
  }
  for (const auto& [part, v] : parts) {
    if (graph_.FindOutput(part) != nullptr) return Invalid("two outputs are named '", Printable(part), "'");
    graph_.AddOutput(part, v.id());
    output_names_.push_back(part);
  }
  return absl::OkStatus();
}

std::string ElementName(const std::string& name, size_t i) { return StrCat(name, ".", i); }

absl::Status CheckOperators(const OnnxModel& model, const std::vector<std::string>& outputs) {
  const absl::Status status = Importer(model, {.outputs = outputs}).Survey();
  return status.ok() ? status : OneLine(Annotate(status, StrCat(model.path(), ": ")));
}

absl::StatusOr<ImportedModel> Import(const OnnxModel& model, const ImportOptions& options) {
  RETURN_IF_ERROR(model.CheckUnchanged());
  auto imported = Importer(model, options).Run();
  if (!imported.ok()) return OneLine(Annotate(imported.status(), StrCat(model.path(), ": ")));
  return imported;
}

}  // namespace onnxtrain
