// The internal graph: SSA, functional, static types, ids instead of pointers.
//
// Nodes stand in topological order: a node reads only graph inputs and outputs of nodes before it. Passes that change a
// graph build a new one (passes/rewrite.h); only appending (Builder, differentiate) works in place.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an absent optional input

struct Value {
  Type type;
  std::string name;   // the source's name for it; may be empty, need not be unique
  int32_t node = -1;  // index of the producing node, -1 for a graph input
  int32_t index = 0;  // which output of that node, or which graph input

  bool operator==(const Value&) const = default;
};

struct Node {
  std::string op;                // the name of a row of the operator table
  std::vector<ValueId> inputs;   // kNoValue where an optional input is absent
  std::vector<ValueId> outputs;  // always all outputs of the row
  Attrs attrs;
  std::string source;            // the ONNX node it came from, for messages: "layer1/conv"

  bool operator==(const Node&) const = default;
};

// Who owns a graph input's bytes and what happens to them.
enum class InputKind : uint8_t {
  kFeed,       // new with every run: data, labels, keys, scalars
  kParameter,  // trained
  kFrozen,     // a weight that is not trained
  kState,      // changed by forward passes and rules: running statistics, moments, counters
  kDerived,    // computed from parameters once per update by the derive program (packed or cast weights)
};

std::string_view NameOf(InputKind kind);  // "feed", "param", "frozen", "state", "derived"

struct GraphInput {
  ValueId value = kNoValue;
  InputKind kind = InputKind::kFeed;
  std::string name;  // unique among the inputs

  bool operator==(const GraphInput&) const = default;
};

struct GraphOutput {
  ValueId value = kNoValue;
  std::string name;          // unique among the outputs
  // An input of the same type whose storage receives the value when the program runs (an update), or kNoValue.
  // Every other reader of that input still sees the old value.
  ValueId into = kNoValue;

  bool operator==(const GraphOutput&) const = default;
};

class Graph {
 public:
  // Adds an input. Its name must be new.
  ValueId AddInput(InputKind kind, std::string name, Type type);
  // Appends a node whose outputs have these types. Types are not inferred here: see ops/builder.h.
  // The returned reference is good until the next call.
  const Node& AddNode(std::string op, std::vector<ValueId> inputs, Attrs attrs, std::vector<Type> output_types,
                      std::string source = "");
  void AddOutput(std::string name, ValueId value, ValueId into = kNoValue);

  const std::deque<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const Value& value(ValueId id) const { return values_[id]; }
  const Type& type(ValueId id) const { return values_[id].type; }
  // The producing node, or null for a graph input.
  const Node* producer(ValueId id) const { return values_[id].node < 0 ? nullptr : &nodes_[values_[id].node]; }
  bool IsInput(ValueId id) const { return values_[id].node < 0; }
  const GraphInput* FindInput(std::string_view name) const;
  const GraphOutput* FindOutput(std::string_view name) const;
  // The tensor of a Constant node, or null.
  const HostTensor* ConstantOf(ValueId id) const;

  // Same ids, names and bytes throughout.
  bool operator==(const Graph& other) const {
    return inputs_ == other.inputs_ && outputs_ == other.outputs_ && nodes_ == other.nodes_ && values_ == other.values_;
  }

  void SetValueName(ValueId id, std::string name) { values_[id].name = std::move(name); }
  void SetInputKind(size_t input, InputKind kind) { inputs_[input].kind = kind; }
  void ClearOutputs() {
    outputs_.clear();
    output_index_.clear();
  }

 private:
  std::deque<Value> values_;  // appending must not move types that formulas hold references to
  std::vector<Node> nodes_;
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> outputs_;
  std::unordered_map<std::string, size_t> input_index_, output_index_;  // by name
};

// "[Conv 'layer1/conv'] ", the prefix of every message about a node.
std::string NodeTag(const Node& node);
std::string NodeTag(std::string_view op, std::string_view source);

// Which nodes read each value, by value id; a node that reads a value twice is listed once.
std::vector<std::vector<int32_t>> Readers(const Graph& graph);

}  // namespace onnxtrain
