// Converts nodes and graphs to the structs of the plugin interface, and attributes and types back.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/plugin/onnxtrain_plugin.h"

namespace onnxtrain {

// Returns a struct that points to the shape of `type`, which must outlive it.
OnnxtrainTensorType ToPluginType(const Type& type);

// Owns everything that an OnnxtrainNode points to except types and constants, which must outlive it.
class PluginNode {
 public:
  PluginNode(std::string_view op, std::string_view source, const Attrs& attrs);
  // Converts a node with its operands. The graph must outlive the object.
  PluginNode(const Graph& graph, const Node& node);
  PluginNode(const PluginNode&) = delete;
  PluginNode& operator=(const PluginNode&) = delete;

  // Append an operand. A null type denotes an absent input.
  void AddInput(const Type* type, const HostTensor* constant = nullptr, int32_t value = -1);
  void AddOutput(const Type& type, int32_t value = -1);
  // Returns the node, valid until the next operand is added.
  const OnnxtrainNode& Get();

 private:
  void AddAttribute(const std::string& name, const AttrValue& value);
  OnnxtrainOperand MakeOperand(const Type* type, const HostTensor* constant, int32_t value);

  const std::string op_, source_;
  const Attrs attrs_;
  std::deque<OnnxtrainTensorType> types_;  // a deque: operands point to them
  std::vector<OnnxtrainAttribute> attributes_;
  std::vector<OnnxtrainOperand> inputs_, outputs_;
  OnnxtrainNode node_ = {};
};

// The nodes of a graph as structs of the plugin interface. The graph must outlive the object.
class PluginGraph {
 public:
  explicit PluginGraph(const Graph& graph);

  const OnnxtrainGraph* get() const { return &graph_; }
  const OnnxtrainNode& node(size_t i) const { return views_[i]; }

 private:
  std::deque<PluginNode> nodes_;
  std::vector<OnnxtrainNode> views_;
  OnnxtrainGraph graph_ = {};
};

// Reads an attribute. Fails on unknown kinds and element types, and if its elements are null.
absl::StatusOr<AttrValue> FromPluginAttribute(const OnnxtrainAttribute& attribute);
// Reads a type. Fails on unknown element types, negative extents and a rank outside [0, ONNXTRAIN_MAX_RANK].
absl::StatusOr<Type> FromPluginType(int32_t element, int32_t rank, const int64_t* shape);

}  // namespace onnxtrain
