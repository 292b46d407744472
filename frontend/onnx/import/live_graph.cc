#include "frontend/onnx/import/live_graph.h"

#include <algorithm>

namespace onnxtrain {

LiveGraph::LiveGraph(const ParsedGraph& graph, const std::vector<std::string>& outputs)
    : names_(outputs.begin(), outputs.end()) {
  auto is_live = [&](const std::string& name) { return !name.empty() && IsRead(name); };
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (std::ranges::any_of(node->outputs, is_live)) AddNode(*node);
  }
  for (auto& [name, users] : users_) std::ranges::reverse(users);
}

void LiveGraph::AddNode(const ParsedNode& node) {
  nodes_.insert(&node);
  for (const std::string& name : node.outputs) producers_[name] = &node;
  for (const auto* names : {&node.inputs, &node.captured}) {
    for (const std::string& name : *names) {
      if (name.empty()) continue;
      names_.insert(name);
      users_[name].push_back(&node);
    }
  }
}

const std::vector<const ParsedNode*>& LiveGraph::Users(const std::string& name) const {
  static const std::vector<const ParsedNode*> none;
  const auto it = users_.find(name);
  return it == users_.end() ? none : it->second;
}

const ParsedNode* LiveGraph::Producer(const std::string& name) const {
  const auto it = producers_.find(name);
  return it == producers_.end() ? nullptr : it->second;
}

}  // namespace onnxtrain
