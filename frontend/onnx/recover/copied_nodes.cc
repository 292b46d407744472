#include "frontend/onnx/recover/copied_nodes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

std::set<std::string> ListValues(const ParsedGraph& graph) {
  std::set<std::string> names;
  for (const ParsedValue& input : graph.inputs) names.insert(input.name);
  for (const auto& [name, tensor] : graph.initializers) names.insert(name);
  for (const ParsedNode& node : graph.nodes) names.insert(node.outputs.begin(), node.outputs.end());
  return names;
}

}  // namespace

std::map<std::string, std::string> FindUnreadParameters(const TorchMetadata& metadata, const ParsedGraph& graph) {
  std::set<std::string_view> args;
  for (const ParsedNode& node : graph.nodes) {
    if (node.fx != nullptr) args.insert(node.fx->args.begin(), node.fx->args.end());
  }
  std::map<std::string, std::string> unread;
  for (const auto& [placeholder, entry] : metadata.signature) {
    if (entry.kind == SignatureEntry::Kind::kParameter && !args.contains(placeholder))
      unread.emplace(entry.target, placeholder);
  }
  return unread;
}

std::string CopiedNodes::NameOutput(std::string_view output, std::string_view module) {
  if (taken_.empty()) taken_ = ListValues(graph_);
  const std::string name = StrCat(output, "/", module);
  std::string own = name;
  for (int i = 2; !taken_.insert(own).second; ++i) own = StrCat(name, "_", i);
  return own;
}

void CopiedNodes::InsertInto(ParsedGraph* graph) {
  if (copies_.empty()) return;
  std::vector<ParsedNode> nodes;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    nodes.push_back(std::move(graph->nodes[i]));
    const auto found = copies_.find(i);
    if (found != copies_.end()) std::ranges::move(found->second, std::back_inserter(nodes));
  }
  graph->nodes = std::move(nodes);
  copies_.clear();
}

}  // namespace onnxtrain
