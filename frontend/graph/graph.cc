#include "frontend/graph/graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return SameBits(x, y); });
}

}  // namespace

bool SameAttr(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<typename T>(const T& value) {
        if constexpr (std::is_same_v<T, HostTensor>) {
          return value.SameBytes(std::get<T>(b));
        } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::vector<double>>) {
          return SameBits(value, std::get<T>(b));
        } else {
          return value == std::get<T>(b);
        }
      },
      a);
}

void Attrs::Set(std::string name, AttrValue value) {
  map_.Mutable().insert_or_assign(std::move(name), std::move(value));
}

void Attrs::Erase(std::string_view name) {
  if (!Has(name)) return;
  Map& map = map_.Mutable();
  map.erase(map.find(name));
}

bool Attrs::operator==(const Attrs& other) const {
  return map_.HoldsSameObject(other.map_) ||
         (map_->size() == other.map_->size() &&
          std::equal(map_->begin(), map_->end(), other.map_->begin(),
                     [](const auto& x, const auto& y) { return x.first == y.first && SameAttr(x.second, y.second); }));
}

namespace {

size_t Hash(std::string_view s) { return std::hash<std::string_view>()(s); }
size_t Hash(int64_t v) { return std::hash<int64_t>()(v); }
size_t Hash(double v) { return std::hash<double>()(v); }
template <typename T>
size_t Hash(const std::vector<T>& values) {
  size_t hash = values.size();
  for (const T& v : values) hash = MixHash(hash, Hash(v));
  return hash;
}
size_t Hash(const HostTensor& tensor) { return HashTensor(tensor); }

}  // namespace

size_t HashTensor(const HostTensor& tensor) {
  constexpr size_t kMax = 4096;
  const auto bytes = tensor.bytes().first(std::min(tensor.bytes().size(), kMax));
  return MixHash(Hash(tensor.shape()),
                 Hash(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
}

size_t HashAttrs(const Attrs& attrs) {
  size_t hash = 0;
  for (const auto& [name, value] : attrs) {
    hash = MixHash(hash, Hash(name));
    hash = MixHash(hash, std::visit([](const auto& v) { return Hash(v); }, value));
  }
  return hash;
}

std::string_view ToString(InputKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"feed", "param", "frozen", "state", "derived"};
  return kNames[static_cast<size_t>(kind)];
}

ValueId Graph::AddInput(InputKind kind, std::string name, Type type) {
  CHECK(input_index_.emplace(name, inputs_.size()).second) << "two graph inputs named " << name;
  const ValueId id = static_cast<ValueId>(values_.size());
  values_.push_back({.type = std::move(type), .name = name, .node = -1, .index = static_cast<int32_t>(inputs_.size())});
  inputs_.push_back({.value = id, .kind = kind, .name = std::move(name)});
  return id;
}

const Node& Graph::AddNode(std::string op, ValueIds inputs, Attrs attrs, std::vector<Type> output_types,
                           Shared<std::string> source) {
  const auto index = static_cast<int32_t>(nodes_.size());
  Node node{.op = std::move(op), .inputs = std::move(inputs), .attrs = std::move(attrs), .source = std::move(source)};
  node.outputs.reserve(output_types.size());
  for (size_t i = 0; i < output_types.size(); ++i) {
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back({.type = std::move(output_types[i]), .node = index, .index = static_cast<int32_t>(i)});
  }
  nodes_.push_back(std::move(node));
  return nodes_.back();
}

const Node& Graph::AddCopy(const Graph& from, const Node& node, ValueIds inputs) {
  const auto index = static_cast<int32_t>(nodes_.size());
  Node copy{.op = node.op, .inputs = std::move(inputs), .attrs = node.attrs, .source = node.source};
  for (ValueId v : node.outputs) {
    const Value& old = from.value(v);
    copy.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back({.type = old.type, .name = old.name, .node = index, .index = old.index});
  }
  nodes_.push_back(std::move(copy));
  return nodes_.back();
}

void Graph::ReserveAs(const Graph& other) {
  nodes_.reserve(other.nodes_.size());
  values_.reserve(other.values_.size());
}

void Graph::AddOutput(std::string name, ValueId value, ValueId into) {
  CHECK(output_index_.emplace(name, outputs_.size()).second) << "two graph outputs named " << name;
  outputs_.push_back({.value = value, .name = std::move(name), .into = into});
}

const GraphInput* Graph::FindInput(std::string_view name) const {
  auto it = input_index_.find(std::string(name));
  return it == input_index_.end() ? nullptr : &inputs_[it->second];
}

const GraphOutput* Graph::FindOutput(std::string_view name) const {
  auto it = output_index_.find(std::string(name));
  return it == output_index_.end() ? nullptr : &outputs_[it->second];
}

const HostTensor* Graph::FindConstant(ValueId id) const {
  const Node* node = id == kNoValue ? nullptr : producer(id);
  return node != nullptr && IsConstant(*node) ? node->attrs.Tensor("value") : nullptr;
}

std::string NodeTag(std::string_view op, std::string_view source) { return StrCat("[", op, " '", source, "'] "); }

std::string NodeTag(const Node& node) { return NodeTag(node.op, *node.source); }

Users ComputeUsers(const Graph& graph) {
  Users readers(graph.values().size());
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    for (ValueId v : graph.nodes()[n].inputs) {
      if (v == kNoValue) continue;
      auto& list = readers[v];
      if (list.empty() || list.back() != static_cast<int32_t>(n)) list.push_back(static_cast<int32_t>(n));
    }
  }
  return readers;
}

namespace {

absl::Status CheckType(const Type& type) {
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (type.layout == Layout::kChannelsLast && type.rank() < 3) return Invalid("no such layout: ", ToString(type));
  return absl::OkStatus();
}

absl::Status CheckNode(const Graph& graph, size_t n) {
  const Node& node = graph.nodes()[n];
  const auto count = static_cast<ValueId>(graph.values().size());
  for (ValueId v : node.inputs) {
    if (v == kNoValue) continue;
    if (v < 0 || v >= count) return Invalid(NodeTag(node), "reads value ", v, ", which does not exist");
    if (graph.value(v).node >= static_cast<int32_t>(n)) {
      return Invalid(NodeTag(node), "reads %", v, " before it is computed");
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId v = node.outputs[i];
    if (v < 0 || v >= count) return Invalid(NodeTag(node), "defines value ", v, ", which does not exist");
    const Value& value = graph.value(v);
    if (value.node != static_cast<int32_t>(n) || value.index != static_cast<int32_t>(i)) {
      return Invalid(NodeTag(node), "does not own its output %", v);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const Graph& graph, const GraphOutput& output) {
  const auto count = static_cast<ValueId>(graph.values().size());
  if (output.value < 0 || output.value >= count) return Invalid("output '", output.name, "' is not bound to a value");
  if (output.into == kNoValue) return absl::OkStatus();
  if (output.into < 0 || output.into >= count || !graph.IsInput(output.into)) {
    return Invalid("output '", output.name, "' is written into a value that is no graph input");
  }
  if (!(graph.type(output.value) == graph.type(output.into))) {
    return Invalid("output '", output.name, "' of type ", ToString(graph.type(output.value)),
                   " is written into an input of type ", ToString(graph.type(output.into)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyStructure(const Graph& graph) {
  for (const Value& value : graph.values()) RETURN_IF_ERROR(CheckType(value.type));
  for (size_t n = 0; n < graph.nodes().size(); ++n) RETURN_IF_ERROR(CheckNode(graph, n));
  for (const GraphOutput& output : graph.outputs()) RETURN_IF_ERROR(CheckOutput(graph, output));
  return absl::OkStatus();
}

}  // namespace onnxtrain
