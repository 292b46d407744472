// Finds the part of the model's graph that the outputs depend on.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Indexes the live nodes of a graph by the names that they read and define. Holds pointers to nodes, so the graph must
// outlive it.
class LiveGraph {
 public:
  // `graph` is sorted. `outputs` are names of values; unknown ones are ignored.
  LiveGraph(const ParsedGraph& graph, const std::vector<std::string>& outputs);

  bool Contains(const ParsedNode& node) const { return nodes_.count(&node) > 0; }
  // Returns true if a live node or an output reads the name.
  bool IsRead(const std::string& name) const { return names_.count(name) > 0; }
  // Returns the live nodes that read the name, directly or in their subgraphs, in topological order.
  const std::vector<const ParsedNode*>& Users(const std::string& name) const;
  // Returns the live node that defines the name, or null.
  const ParsedNode* Producer(const std::string& name) const;

 private:
  void AddNode(const ParsedNode& node);

  std::unordered_set<const ParsedNode*> nodes_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, std::vector<const ParsedNode*>> users_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
};

}  // namespace onnxtrain
