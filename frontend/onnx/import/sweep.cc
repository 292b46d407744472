#include "frontend/onnx/import/sweep.h"

#include <algorithm>

namespace onnxtrain {
namespace {

class GraphSweeper {
 public:
  explicit GraphSweeper(const Graph& from)
      : from_(from), live_(from.values().size(), false), map_(from.values().size(), kNoValue) {}

  SweptGraph Run() {
    MarkLive();
    Graph to;
    for (const GraphInput* input : OrderedInputs()) {
      if (live_[input->value] || input->kind == InputKind::kFeed)
        map_[input->value] = to.AddInput(input->kind, input->name, from_.type(input->value));
    }
    for (const Node& node : from_.nodes()) {
      if (IsLive(node)) Copy(node, &to);
    }
    for (const GraphOutput& output : from_.outputs()) {
      to.AddOutput(output.name, map_[output.value], output.into == kNoValue ? kNoValue : map_[output.into]);
    }
    return {std::move(to), std::move(map_)};
  }

 private:
  bool IsLive(const Node& node) const {
    return std::ranges::any_of(node.outputs, [&](ValueId v) { return live_[v]; });
  }

  std::vector<const GraphInput*> OrderedInputs() const {
    std::vector<const GraphInput*> inputs;
    for (const GraphInput& input : from_.inputs()) inputs.push_back(&input);
    const auto users = ComputeUsers(from_);
    auto first_user = [&](const GraphInput* input) {
      if (input->kind == InputKind::kFeed) return -1;
      const auto& nodes = users[input->value];
      return nodes.empty() ? static_cast<int32_t>(from_.nodes().size()) : nodes.front();
    };
    std::ranges::stable_sort(inputs, {}, first_user);
    return inputs;
  }

  void MarkLive() {
    for (const GraphOutput& output : from_.outputs()) {
      live_[output.value] = true;
      if (output.into != kNoValue) live_[output.into] = true;
    }
    for (auto node = from_.nodes().rbegin(); node != from_.nodes().rend(); ++node) {
      if (!IsLive(*node)) continue;
      for (ValueId v : node->inputs) {
        if (v != kNoValue) live_[v] = true;
      }
    }
  }

  void Copy(const Node& node, Graph* to) {
    ValueIds inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? kNoValue : map_[v]);
    const Node& copy = to->AddCopy(from_, node, std::move(inputs));
    for (size_t i = 0; i < copy.outputs.size(); ++i) map_[node.outputs[i]] = copy.outputs[i];
  }

  const Graph& from_;
  std::vector<bool> live_;
  std::vector<ValueId> map_;
};

}  // namespace

SweptGraph SweepGraph(const Graph& graph) { return GraphSweeper(graph).Run(); }

}  // namespace onnxtrain
