#include "frontend/onnx/import/symbol_table.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {

std::optional<ImportValue> SymbolTable::Find(ImportScope& scope, const std::string& name, const ParsedNode& reader) {
  for (ImportScope* at = &scope; at != nullptr; at = at->parent) {
    if (auto it = at->values.find(name); it != at->values.end())
      return it->second.valid() ? std::optional<ImportValue>(it->second) : std::nullopt;
    if (auto it = at->graph->initializers.find(name); it != at->graph->initializers.end()) {
      const Val v = weights_.ReadInitializer(*at, name, it->second, reader);
      return at->values[name] = v;
    }
    if (auto it = at->graph->opaque.find(name); it != at->graph->opaque.end()) {
      errors_.Add(reader,
                  absl::UnimplementedError(StrCat("initializer '", Printable(name), "' is a tensor of ", it->second)));
      at->values[name] = Val();
      return std::nullopt;
    }
  }
  return ImportValue();
}

std::optional<Val> SymbolTable::FindTensor(ImportScope& scope, const std::string& name, const ParsedNode& reader) {
  const std::optional<ImportValue> value = Find(scope, name, reader);
  if (!value) return std::nullopt;
  if (value->list == nullptr) return value->tensor;
  errors_.Add(reader, Invalid("reads '", Printable(name), "', which is ",
                              value->list->form.optional ? "an optional" : "a sequence", ", as a tensor"));
  return std::nullopt;
}

bool SymbolTable::CanRead(ImportScope& scope, const ParsedNode& node) {
  auto found = [&](const std::string& name) { return name.empty() || Find(scope, name, node); };
  return std::ranges::all_of(node.inputs, found) && std::ranges::all_of(node.captured, found);
}

ImportValues SymbolTable::FindInputs(ImportScope& scope, const ParsedNode& node) {
  ImportValues inputs;
  for (const std::string& name : node.inputs) inputs.push_back(name.empty() ? ImportValue() : *Find(scope, name, node));
  return inputs;
}

void SymbolTable::Bind(ImportScope& scope, const ParsedNode& node, const ImportValues& results) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const ImportValue value = i < results.size() ? results[i] : ImportValue();
    scope.values[node.outputs[i]] = value;
    const Val v = value.tensor;
    if (v.valid() && builder_.graph().value(v.id()).name->empty())
      builder_.graph().SetValueName(v.id(), scope.prefix + node.outputs[i]);
  }
}

}  // namespace onnxtrain
