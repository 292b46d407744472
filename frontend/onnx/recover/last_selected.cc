#include "frontend/onnx/recover/last_selected.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

class Joiner {
 public:
  explicit Joiner(ParsedGraph* graph) : graph_(*graph) {
    for (const ParsedNode& node : graph_.nodes) {
      for (const std::string& output : node.outputs) producers_.emplace(output, &node);
      for (const std::string& input : node.inputs) ++readers_[input];
      for (const std::string& name : node.captured) ++readers_[name];
    }
    for (const ParsedValue& output : graph_.outputs) ++readers_[output.name];
  }

  void Run() {
    std::set<std::string> joined;  // outputs of nodes that nothing reads any more
    for (ParsedNode& node : graph_.nodes) {
      if (auto replacement = Match(node, &joined)) node = *std::move(replacement);
    }
    std::erase_if(graph_.nodes,
                  [&](const ParsedNode& node) { return node.outputs.size() == 1 && joined.contains(node.outputs[0]); });
  }

 private:
  // Returns the producer of an input if it is such a node and nothing else reads its output.
  const ParsedNode* OnlyFor(const ParsedNode& reader, size_t input, std::string_view op) const {
    const auto found = producers_.find(reader.inputs[input]);
    const bool only = found != producers_.end() && IsOp(*found->second, {op}) && readers_.at(found->first) == 1;
    return only ? found->second : nullptr;
  }

  const HostTensor* FindTensor(const std::string& name) const {
    const auto initializer = graph_.initializers.find(name);
    if (initializer != graph_.initializers.end()) return &initializer->second;
    const auto producer = producers_.find(name);
    return producer != producers_.end() && IsConstant(*producer->second) ? producer->second->attrs.Tensor("value")
                                                                         : nullptr;
  }

  bool TakesLast(const ParsedNode& node) const {
    if (!IsOp(node, {"Gather"}) || node.attrs.Int("axis") != 1) return false;
    const HostTensor* index = FindTensor(node.inputs[1]);
    return index != nullptr && index->shape().empty() && index->IntAt(0) == -1;
  }

  std::optional<ParsedNode> Match(const ParsedNode& take, std::set<std::string>* joined) const {
    const ParsedNode* view = TakesLast(take) ? OnlyFor(take, 0, "Reshape") : nullptr;
    const ParsedNode* select = view != nullptr ? OnlyFor(*view, 0, "GatherND") : nullptr;
    const ParsedNode* places = select != nullptr ? OnlyFor(*select, 1, "Transpose") : nullptr;
    const ParsedNode* found = places != nullptr ? OnlyFor(*places, 0, "NonZero") : nullptr;
    if (found == nullptr || select->attrs.Int("batch_dims") != 0) return std::nullopt;
    for (const ParsedNode* node : {view, select, places, found}) joined->insert(node->outputs[0]);
    ParsedNode last = MakeRowNode("last", std::string(kLastSelected),
                                  {select->inputs[0], found->inputs[0], view->inputs[1]}, take.outputs[0], {});
    last.domain = kRowDomain;
    last.name = last.source = take.source;
    return last;
  }

  ParsedGraph& graph_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
  std::unordered_map<std::string, int> readers_;
};

}  // namespace

void JoinLastSelections(ParsedGraph* graph) {
  const auto selects = [](const ParsedNode& node) { return IsOp(node, {"NonZero"}); };
  if (std::ranges::any_of(graph->nodes, selects)) Joiner(graph).Run();
}

}  // namespace onnxtrain
