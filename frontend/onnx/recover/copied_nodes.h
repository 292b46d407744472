// Copies of nodes that read parameters of their own: the parts that the readers of merged nodes share.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns the placeholders of the parameters that no fx node reads, by the parameters' names.
std::map<std::string, std::string> FindUnreadParameters(const TorchMetadata& metadata, const ParsedGraph& graph);

// Collects copies of a graph's nodes.
class CopiedNodes {
 public:
  explicit CopiedNodes(const ParsedGraph& graph) : graph_(graph) {}

  // Returns OUTPUT/MODULE, with a number where the graph has a value of that name.
  std::string NameOutput(std::string_view output, std::string_view module);
  // Adds a copy, to follow the node at this position and the copies that were added there before.
  void Add(size_t position, ParsedNode copy) { copies_[position].push_back(std::move(copy)); }
  // Inserts the copies into the graph, and forgets them.
  void InsertInto(ParsedGraph* graph);

 private:
  const ParsedGraph& graph_;
  std::set<std::string> taken_;  // names of values; filled when the first is asked for
  std::map<size_t, std::vector<ParsedNode>> copies_;
};

}  // namespace onnxtrain
