#include "optim/step/program/stored_weights.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

// FNV-1a: the same on every machine.
int64_t MakeStream(std::string_view weight) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : weight) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return static_cast<int64_t>(hash >> 1);
}

class Adapter {
 public:
  Adapter(const Graph& graph, uint64_t seed) : graph_(graph), seed_(static_cast<int64_t>(seed)), b_(&result_) {}

  absl::StatusOr<Graph> Run(const std::set<std::string>& stored) {
    result_.ReserveAs(graph_);
    inputs_.assign(graph_.values().size(), kNoValue);
    for (const GraphInput& input : graph_.inputs()) {
      Type type = graph_.type(input.value);
      if (stored.contains(input.name)) type.dtype = DType::kBFloat16;
      inputs_[input.value] = result_.AddInput(input.kind, input.name, type);
    }
    now_ = inputs_;
    for (const GraphInput& input : graph_.inputs()) {
      if (stored.contains(input.name)) now_[input.value] = Cast(b_.Wrap(inputs_[input.value]), DType::kFloat32).id();
    }
    for (const Node& node : graph_.nodes()) Copy(node);
    for (const GraphOutput& output : graph_.outputs()) RETURN_IF_ERROR(AddOutput(output));
    RETURN_IF_ERROR(b_.status());
    return std::move(result_);
  }

 private:
  void Copy(const Node& node) {
    ValueIds operands;
    for (const ValueId v : node.inputs) operands.push_back(v == kNoValue ? v : now_[v]);
    const Node& copy = result_.AddCopy(graph_, node, std::move(operands));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) now_[node.outputs[i]] = copy.outputs[i];
    }
  }

  absl::Status AddOutput(const GraphOutput& output) {
    const ValueId into = output.into == kNoValue ? kNoValue : inputs_[output.into];
    ValueId value = now_[output.value];
    if (into != kNoValue && result_.type(into).dtype != result_.type(value).dtype) {
      const GraphInput* applied = result_.FindInput(device_scalar::kApplied);
      if (applied == nullptr) return Invalid("`weight_dtype` bf16: the graph counts no updates");
      const int64_t stream = MakeStream(graph_.inputs()[graph_.value(output.into).index].name);
      value = b_.Op("RoundStochastic", {b_.Wrap(value), b_.Wrap(applied->value)}, {{"seed", seed_}, {"stream", stream}})
                  .id();
    }
    result_.AddOutput(output.name, value, into);
    return absl::OkStatus();
  }

  const Graph& graph_;
  const int64_t seed_;
  Graph result_;
  Builder b_;
  std::vector<ValueId> inputs_, now_;  // new values by old ones
};

}  // namespace

absl::StatusOr<Graph> AdaptToStoredWeights(const Graph& graph,
                                           const std::function<const Region*(const std::string&)>& region,
                                           uint64_t seed) {
  std::set<std::string> stored;
  for (const GraphInput& input : graph.inputs()) {
    const Region* found = input.kind == InputKind::kFeed ? nullptr : region(input.name);
    if (found != nullptr && IsStoredInBf16(found->type, graph.type(input.value))) stored.insert(input.name);
  }
  if (stored.empty()) return graph;
  return Adapter(graph, seed).Run(stored);
}

namespace {

// Returns by node whether it widens a weight that it reads as stored.
std::vector<bool> FindWidening(const Graph& graph) {
  std::vector<bool> widens;
  for (const Node& node : graph.nodes()) {
    const bool weight = FindOp(node.op)->derive && node.inputs.size() == 1 && graph.IsInput(node.inputs[0]);
    widens.push_back(weight && graph.type(node.outputs[0]).bytes() > graph.type(node.inputs[0]).bytes());
  }
  return widens;
}

}  // namespace

Graph WidenWhereRead(const Graph& legal) {
  const std::vector<bool> widens = FindWidening(legal);
  if (std::ranges::find(widens, true) == widens.end()) return legal;
  Graph result;
  result.ReserveAs(legal);
  std::vector<ValueId> now(legal.values().size(), kNoValue);
  for (const GraphInput& input : legal.inputs())
    now[input.value] = result.AddInput(input.kind, input.name, legal.type(input.value));
  const auto copy = [&](const Node& node) -> const Node& {
    ValueIds operands;
    for (const ValueId v : node.inputs) operands.push_back(v == kNoValue ? v : now[v]);
    return result.AddCopy(legal, node, std::move(operands));
  };
  const auto widen = [&](ValueId v) {
    if (v == kNoValue || legal.IsInput(v) || !widens[legal.value(v).node]) return;
    now[v] = copy(legal.nodes()[legal.value(v).node]).outputs[0];
  };
  for (size_t n = 0; n < widens.size(); ++n) {
    if (widens[n]) continue;
    const Node& node = legal.nodes()[n];
    std::ranges::for_each(node.inputs, widen);
    const Node& made = copy(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) now[node.outputs[i]] = made.outputs[i];
    }
  }
  for (const GraphOutput& output : legal.outputs()) {
    widen(output.value);
    result.AddOutput(output.name, now[output.value], output.into == kNoValue ? kNoValue : now[output.into]);
  }
  return result;
}

}  // namespace onnxtrain
