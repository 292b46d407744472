#include "frontend/onnx/recover/weight_index.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "frontend/onnx/recover/tensor_compare.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {

ParsedNode MakeRowNode(std::string_view kind, std::string op, std::vector<std::string> inputs,
                       const std::string& output, Attrs attrs) {
  ParsedNode node{.op_type = std::move(op), .inputs = std::move(inputs), .outputs = {output}};
  node.name = node.source = StrCat(kind, "/", output);
  node.attrs = std::move(attrs);
  return node;
}

WeightIndex::WeightIndex(const TorchMetadata& metadata, OnnxModel::Parsed* model)
    : metadata_(metadata), model_(*model) {
  for (const ParsedValue& input : graph().inputs) inputs_.insert(input.name);
  for (const ParsedValue& output : graph().outputs) outputs_.insert(output.name);
  Refresh();
}

ParsedNode* WeightIndex::Producer(const std::string& name) const {
  const auto producer = producers_.find(name);
  return producer == producers_.end() ? nullptr : producer->second;
}

const std::vector<WeightReader>& WeightIndex::Readers(const std::string& name) const {
  static const std::vector<WeightReader> kNone;
  const auto readers = readers_.find(name);
  return readers == readers_.end() ? kNone : readers->second;
}

const std::vector<WeightReader>& WeightIndex::ElementReaders(const std::string& name) const {
  const auto readers = element_readers_.find(name);
  return readers == element_readers_.end() ? Readers(name) : readers->second;
}

bool WeightIndex::IsNameTaken(const std::string& name) const {
  return inputs_.contains(name) || producers_.contains(name) || graph().initializers.contains(name) ||
         graph().opaque.contains(name);
}

const HostTensor* WeightIndex::FindTensor(const std::string& name) const {
  const auto stored = graph().initializers.find(name);
  return stored == graph().initializers.end() ? nullptr : &stored->second;
}

const WeightOrigin& WeightIndex::Origin(const std::string& name) const {
  static const WeightOrigin kUnknown;
  const auto origin = graph().origins.find(name);
  return origin == graph().origins.end() ? kUnknown : origin->second;
}

std::vector<std::string> WeightIndex::ListInitializers() const {
  std::vector<std::string> names;
  std::ranges::copy_if(graph().initializer_order, std::back_inserter(names),
                       [&](const std::string& name) { return graph().initializers.contains(name); });
  return names;
}

std::vector<std::pair<std::string, std::string>> WeightIndex::ListCopies() const {
  std::map<std::string, std::string> copies;
  for (const ParsedNode& node : graph().nodes) {
    if (IsIdentity(node) && graph().initializers.contains(node.inputs[0]))
      copies.emplace(node.outputs[0], node.inputs[0]);
  }
  return {copies.begin(), copies.end()};
}

uint64_t WeightIndex::SumOfBytes(const std::string& name) {
  const auto [sum, first] = sums_.try_emplace(name, 0);
  if (first) sum->second = onnxtrain::SumOfBytes(graph().initializers.at(name));
  return sum->second;
}

WeightRecord WeightIndex::MakeKind(const std::string& weight, WeightOrigin::Kind kind, std::string why) const {
  return {.weight = weight,
          .why = std::move(why),
          .form = WeightOrigin{.kind = kind, .module_name = Origin(weight).module_name}};
}

void WeightIndex::InsertFirst(std::vector<ParsedNode>* added) {
  ParsedGraph& graph = model_.graph;
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(added->begin()),
                     std::make_move_iterator(added->end()));
  added->clear();
}

void WeightIndex::InsertCopies() {
  if (copies.empty()) return;
  std::vector<ParsedNode> all;
  for (size_t i = 0; i < model_.graph.nodes.size(); ++i) {
    all.push_back(std::move(model_.graph.nodes[i]));
    const auto found = copies.find(i);
    if (found != copies.end()) std::ranges::move(found->second, std::back_inserter(all));
  }
  model_.graph.nodes = std::move(all);
  copies.clear();
}

void WeightIndex::Refresh() {
  InsertCopies();
  if (!removed.empty())
    std::erase_if(model_.graph.nodes,
                  [&](const ParsedNode& node) { return !node.outputs.empty() && removed.contains(node.outputs[0]); });
  removed.clear();
  InsertFirst(&nodes);
  producers_.clear();
  readers_.clear();
  element_readers_.clear();
  std::unordered_set<std::string> shapes;
  for (ParsedNode& node : model_.graph.nodes) {
    for (const std::string& output : node.outputs) {
      if (!output.empty()) producers_[output] = &node;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].empty()) continue;
      readers_[node.inputs[i]].push_back({&node, i});
      if (ReadsShapeOnly(node)) shapes.insert(node.inputs[i]);
    }
  }
  for (const std::string& name : shapes) {
    std::ranges::copy_if(readers_.at(name), std::back_inserter(element_readers_[name]),
                         [](const WeightReader& reader) { return !ReadsShapeOnly(*reader.node); });
  }
}

void WeightIndex::Finish() {
  InsertFirst(&tie_nodes);
  std::erase_if(model_.graph.initializer_order, [&](const auto& name) {
    return !graph().initializers.contains(name) && !graph().opaque.contains(name);
  });
}

}  // namespace onnxtrain
