// The intermediate representation: an SSA graph with static types, without side effects. Ids instead of pointers.
//
// Nodes are in topological order: a node reads only graph inputs and outputs of earlier nodes. Passes that change a
// graph build a new one (passes/rewrite.h); only appending (Builder, differentiate) works in place.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "frontend/base/shared.h"
#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an absent optional input
using ValueIds = absl::InlinedVector<ValueId, 4>;

// Passes copy graphs node by node: what they do not change is shared between the copies.
struct Value {
  Shared<Type> type;
  Shared<std::string> name;  // its name in the ONNX model; may be empty, need not be unique
  int32_t node = -1;         // index of the producing node, -1 for a graph input
  int32_t index = 0;         // which output of that node, or which graph input

  bool operator==(const Value&) const = default;
};

struct Node {
  std::string op;    // the name of a row of the operator table
  ValueIds inputs;   // kNoValue where an optional input is absent
  ValueIds outputs;  // as many as the row has
  Attrs attrs;
  Shared<std::string> source;  // the ONNX node it came from, for messages: "layer1/conv"

  bool operator==(const Node&) const = default;
};

// A node without inputs whose output is its attribute "value".
inline bool IsConstant(const Node& node) { return node.op == "Constant"; }

// Who provides the bytes of a graph input and who changes them.
enum class InputKind : uint8_t {
  kFeed,       // fed with every run: data, labels, random keys, scalars
  kParameter,  // a trained weight
  kFrozen,     // a weight that is not trained
  kState,      // updated by forward passes and optimizer rules: running statistics, moments, counters
  kDerived,    // computed from parameters once per update by the derive program: packed or cast weights
};

std::string_view ToString(InputKind kind);  // "feed", "param", "frozen", "state", "derived"

struct GraphInput {
  ValueId value = kNoValue;
  InputKind kind = InputKind::kFeed;
  std::string name;  // unique among the inputs

  bool operator==(const GraphInput&) const = default;
};

struct GraphOutput {
  ValueId value = kNoValue;
  std::string name;  // unique among the outputs
  // An update: the input of the same type whose storage receives the value when the program runs. All readers of that
  // input still see the old value. kNoValue: not an update.
  ValueId into = kNoValue;

  bool operator==(const GraphOutput&) const = default;
};

class Graph {
 public:
  // Adds an input, whose name must be new.
  ValueId AddInput(InputKind kind, std::string name, Type type);
  // Appends a node with one output per type; ops/builder.h infers the types. The returned reference is valid until the
  // next call.
  const Node& AddNode(std::string op, ValueIds inputs, Attrs attrs, std::vector<Type> output_types,
                      Shared<std::string> source = {});
  // Appends a copy of a node of another graph that reads `inputs`. Its outputs keep their types and names.
  const Node& AddCopy(const Graph& from, const Node& node, ValueIds inputs);
  // Allocates for as many nodes and values as the other graph has.
  void ReserveAs(const Graph& other);
  void AddOutput(std::string name, ValueId value, ValueId into = kNoValue);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const Value& value(ValueId id) const { return values_[id]; }
  // The reference outlives appending.
  const Type& type(ValueId id) const { return *values_[id].type; }
  // Returns the producing node, or null for a graph input.
  const Node* producer(ValueId id) const { return values_[id].node < 0 ? nullptr : &nodes_[values_[id].node]; }
  bool IsInput(ValueId id) const { return values_[id].node < 0; }
  const GraphInput* FindInput(std::string_view name) const;
  const GraphOutput* FindOutput(std::string_view name) const;
  // Returns the tensor of a Constant node, or null for any other value.
  const HostTensor* FindConstant(ValueId id) const;

  // Compares ids, names, attributes and bytes.
  bool operator==(const Graph& other) const {
    return inputs_ == other.inputs_ && outputs_ == other.outputs_ && nodes_ == other.nodes_ && values_ == other.values_;
  }

  void SetValueName(ValueId id, Shared<std::string> name) { values_[id].name = std::move(name); }
  void SetInputKind(size_t input, InputKind kind) { inputs_[input].kind = kind; }
  void ClearOutputs() {
    outputs_.clear();
    output_index_.clear();
  }

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> outputs_;
  std::unordered_map<std::string, size_t> input_index_, output_index_;  // by name
};

// Returns "[Conv 'layer1/conv'] ", the prefix of every message about a node.
std::string NodeTag(const Node& node);
std::string NodeTag(std::string_view op, std::string_view source);

// The nodes that read each value, by value id.
using Users = std::vector<absl::InlinedVector<int32_t, 4>>;

// A node that reads a value twice is listed once.
Users ComputeUsers(const Graph& graph);

// Verifies the structural invariants of a graph. ops/check.h checks types against the operator rows.

// Checks ids, topological order, one producer per value, shapes, bound outputs, and that `into` has the output's type.
absl::Status VerifyStructure(const Graph& graph);

}  // namespace onnxtrain
