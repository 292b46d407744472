// The intermediate representation: an SSA graph with static types, without side effects. Ids instead of pointers.
//
// Nodes are in topological order: a node reads only graph inputs and outputs of earlier nodes. Passes that change a
// graph build a new one (passes/rewrite.h); only appending (Builder, differentiate) works in place.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "frontend/base/shared.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, HostTensor>;

// Compares numbers and tensors by their bits: a NaN equals itself, and -0 differs from 0.
bool SameAttr(const AttrValue& a, const AttrValue& b);

// The attributes of a node by name. Copies share storage.
class Attrs {
  using Map = std::map<std::string, AttrValue, std::less<>>;

 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> list) : map_(Map(list)) {}

  bool Has(std::string_view name) const { return map_->find(name) != map_->end(); }
  // Returns the attribute, or null if it is absent or of another kind.
  template <typename T>
  const T* Find(std::string_view name) const {
    auto it = map_->find(name);
    return it == map_->end() ? nullptr : std::get_if<T>(&it->second);
  }
  // Return the attribute, or the default if it is absent. They report no errors: operator rows declare the kinds of
  // their attributes, and every node of a graph has been checked against its row.
  int64_t Int(std::string_view name, int64_t otherwise = 0) const { return Get<int64_t>(name, otherwise); }
  double Float(std::string_view name, double otherwise = 0) const { return Get<double>(name, otherwise); }
  std::string String(std::string_view name, std::string otherwise = "") const {
    return Get(name, std::move(otherwise));
  }
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> otherwise = {}) const {
    return Get(name, std::move(otherwise));
  }
  std::vector<double> Floats(std::string_view name, std::vector<double> otherwise = {}) const {
    return Get(name, std::move(otherwise));
  }
  const HostTensor* Tensor(std::string_view name) const { return Find<HostTensor>(name); }

  void Set(std::string name, AttrValue value);
  void Erase(std::string_view name);

  bool empty() const { return map_->empty(); }
  auto begin() const { return map_->begin(); }
  auto end() const { return map_->end(); }
  bool operator==(const Attrs& other) const;

 private:
  template <typename T>
  T Get(std::string_view name, T otherwise) const {
    const T* value = Find<T>(name);
    return value == nullptr ? std::move(otherwise) : *value;
  }

  Shared<Map> map_;
};

// Combines the hash of a sequence with the hash of its next element.
inline size_t MixHash(size_t hash, size_t more) { return (hash ^ more) * 0x9E3779B97F4A7C15u + (hash >> 29); }

// Equal tensors and attributes have equal hashes. HashTensor reads only the beginning of a long tensor.
size_t HashTensor(const HostTensor& tensor);
size_t HashAttrs(const Attrs& attrs);

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an absent optional input
using ValueIds = absl::InlinedVector<ValueId, 4>;

// Types and names are shared between graphs, since passes copy graphs node by node.
struct Value {
  Shared<Type> type;
  Shared<std::string> name;  // the name in the ONNX model; may be empty, need not be unique
  int32_t node = -1;         // index of the producing node, -1 for a graph input
  int32_t index = 0;         // index among the outputs of that node, or among the graph inputs

  bool operator==(const Value&) const = default;
};

struct Node {
  std::string op;    // the name of a row of the operator table
  ValueIds inputs;   // kNoValue where an optional input is absent
  ValueIds outputs;  // one per output of the row
  Attrs attrs;
  Shared<std::string> source;  // the ONNX node it was imported from, for messages: "layer1/conv"

  bool operator==(const Node&) const = default;
};

// A Constant has no inputs; its output is the attribute "value".
inline bool IsConstant(const Node& node) { return node.op == "Constant"; }

// States who provides the bytes of a graph input and who changes them.
enum class InputKind : uint8_t {
  kFeed,       // fed with every run: data, labels, random keys, scalars
  kParameter,  // a trained weight
  kFrozen,     // a weight that is not trained
  kState,      // updated by forward passes and optimizer rules: running statistics, moments, counters
  kDerived,    // computed from weights when they change, by a derive program: packed or cast weights
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
  // Makes the output an update: the program stores the value in this input, which has the same type. All readers of the
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
  // Reserves memory for as many nodes and values as the other graph has.
  void ReserveAs(const Graph& other);
  void AddOutput(std::string name, ValueId value, ValueId into = kNoValue);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const Value& value(ValueId id) const { return values_[id]; }
  // The reference stays valid when nodes are appended.
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

// Indices of the nodes that read each value, by value id.
using Users = std::vector<absl::InlinedVector<int32_t, 4>>;

// Lists a node once per value, even if it reads the value twice.
Users ComputeUsers(const Graph& graph);

// Checks ids, topological order, one producer per value, shapes, bound outputs, and that `into` has the output's type.
// Verify (ops/row.h) also checks the nodes against their operator rows.
absl::Status VerifyStructure(const Graph& graph);

}  // namespace onnxtrain
