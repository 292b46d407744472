#include "frontend/onnx/edit/library_names.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace onnxtrain {
namespace {

// Beginnings of the names of layers in models of transformers: the model, or any, and what follows.
struct StackName {
  std::string_view model, layers;
};
constexpr StackName kStacks[] = {{"model", ".layers."},
                                 {"model", ".encoder.layers."},
                                 {"model", ".decoder.layers."},
                                 {"transformer", ".h."},
                                 {"gpt_neox", ".layers."},
                                 {"distilbert", ".transformer.layer."},
                                 {"vit", ".layers."},
                                 {"albert", ".encoder.albert_layer_groups."},
                                 {"swin", ".encoder.layers."},
                                 {"wav2vec2", ".encoder.layers."},
                                 {"hubert", ".encoder.layers."},
                                 {"wavlm", ".encoder.layers."},
                                 {"encoder", ".block."},
                                 {"decoder", ".block."},
                                 {"", ".encoder.layer."}};

// Returns true if the name is one of a layer: "electra.encoder.layer.0".
bool IsInStack(std::string_view name) {
  const size_t end = std::min(name.find('.'), name.size());
  return std::ranges::any_of(kStacks, [&](const StackName& stack) {
    const bool of_model = stack.model.empty() || name.substr(0, end) == stack.model;
    return of_model && name.substr(end).starts_with(stack.layers);
  });
}

// Returns the module that the library of the model counts names from, as the metadata of all nodes has it.
std::optional<std::string> FindLibraryModule(const ParsedGraph& graph) {
  std::optional<std::string> found;
  for (const ParsedNode& node : graph.nodes) {
    if (node.fx == nullptr || !node.fx->library_module) continue;
    if (found && *found != *node.fx->library_module) return "";
    found = node.fx->library_module;
  }
  return found;
}

}  // namespace

std::string FindWrapper(const ParsedGraph& graph, const std::vector<std::string>& names) {
  const std::string first = names.empty() ? "" : names[0].substr(0, names[0].find('.') + 1);
  const auto wrapped = [](const std::string& wrapper) {
    return [&wrapper](const std::string& name) { return name.starts_with(wrapper); };
  };
  if (const std::optional<std::string> module = FindLibraryModule(graph)) {
    const std::string wrapper = module->empty() ? "" : *module + ".";
    return std::ranges::all_of(names, wrapped(wrapper)) ? wrapper : "";
  }
  const auto stacks = [&](const std::string& name) { return IsInStack(std::string_view(name).substr(first.size())); };
  return std::ranges::all_of(names, wrapped(first)) && std::ranges::any_of(names, stacks) ? first : "";
}

std::string WithoutPrefix(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

}  // namespace onnxtrain
