#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/weight_names.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

constexpr int kMaxSteps = 4;  // nodes between a product and its scale
constexpr size_t kWeightInput = 1;

const QuantizedWeight* FindRow(std::string_view domain, std::string_view op_type) {
  const QuantizedWeight* row = FindQuantizedWeight(domain, op_type, kWeightInput);
  return row != nullptr && row->scale_behind ? row : nullptr;
}

class ScaleFinder {
 public:
  ScaleFinder(const std::vector<NodeNames>& nodes, const std::function<bool(const std::string&)>& is_initializer)
      : is_initializer_(is_initializer) {
    for (const NodeNames& node : nodes) {
      for (const std::string& output : node.outputs) producers_[output] = &node;
      for (const std::string& input : node.inputs) readers_[input].push_back(&node);
    }
  }

  // The scale behind a product, or "".
  std::string Find(const NodeNames& product) const {
    const NodeNames* node = &product;
    for (int step = 0; step < kMaxSteps; ++step) {
      const auto readers = node->outputs.empty() ? readers_.end() : readers_.find(node->outputs[0]);
      if (readers == readers_.end() || readers->second.size() != 1) return "";
      const NodeNames* next = readers->second[0];
      if (step == 0 && next->op_type == "Add") {  // of a bias on the grid of the products
        node = next;
        continue;
      }
      if (!IsMul(*next) && next->op_type != "Cast") return "";
      std::string scale = IsMul(*next) ? StoredFactor(OtherInput(*next, node->outputs[0])) : "";
      if (!scale.empty()) return scale;
      node = next;
    }
    return "";
  }

 private:
  static bool IsMul(const NodeNames& node) { return node.op_type == "Mul" && node.inputs.size() == 2; }
  static const std::string& OtherInput(const NodeNames& mul, const std::string& input) {
    return mul.inputs[mul.inputs[0] == input ? 1 : 0];
  }

  // The factor itself, or the stored one of the two that it is the product of; the scale of the activations comes
  // first.
  std::string StoredFactor(const std::string& factor) const {
    if (is_initializer_(factor)) return factor;
    const auto producer = producers_.find(factor);
    if (producer == producers_.end() || !IsMul(*producer->second)) return "";
    const auto& inputs = producer->second->inputs;
    const auto stored = std::find_if(inputs.rbegin(), inputs.rend(), is_initializer_);
    return stored == inputs.rend() ? "" : *stored;
  }

  const std::function<bool(const std::string&)>& is_initializer_;
  std::unordered_map<std::string_view, const NodeNames*> producers_;
  std::unordered_map<std::string_view, std::vector<const NodeNames*>> readers_;
};

}  // namespace

std::map<size_t, std::string> FindProductScales(const std::vector<NodeNames>& nodes,
                                                const std::function<bool(const std::string&)>& is_initializer) {
  std::map<size_t, std::string> scales;
  const ScaleFinder finder(nodes, is_initializer);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const QuantizedWeight* row = FindRow(nodes[i].domain, nodes[i].op_type);
    if (row == nullptr || nodes[i].inputs.size() <= kWeightInput || nodes[i].inputs.size() > row->scale) continue;
    if (!is_initializer(nodes[i].inputs[kWeightInput])) continue;
    std::string scale = finder.Find(nodes[i]);
    if (!scale.empty()) scales.emplace(i, std::move(scale));
  }
  return scales;
}

absl::StatusOr<WeightRecords> MatchProductScales(WeightIndex* index) {
  WeightRecords records;
  const std::vector<ParsedNode>& graph = index->graph().nodes;
  const auto has_product = [](const ParsedNode& node) { return FindRow(node.domain, node.op_type) != nullptr; };
  if (std::ranges::none_of(graph, has_product)) return records;
  std::vector<NodeNames> nodes;
  for (const ParsedNode& node : graph) nodes.push_back({node.domain, node.op_type, node.inputs, node.outputs});
  const auto is_initializer = [&](const std::string& name) { return index->FindTensor(name) != nullptr; };
  for (const auto& [at, scale] : FindProductScales(nodes, is_initializer))
    records.push_back({.weight = scale,
                       .why = "it scales integer products",
                       .form = AddedInput{.node = MakeFileReader(graph[at], 0).node,
                                          .input = FindRow(graph[at].domain, graph[at].op_type)->scale}});
  return records;
}

// It is not trained.
void BuildProductScale(const WeightRecord& record, WeightIndex* index) {
  const auto& [node, input] = std::get<AddedInput>(record.form);
  if (ParsedNode* product = index->Producer(node)) {
    product->inputs.resize(input);
    product->inputs.push_back(record.weight);
  }
  index->mutable_graph().origins[record.weight].kind = WeightOrigin::Kind::kConstant;
}

}  // namespace onnxtrain
