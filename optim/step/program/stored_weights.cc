#include "optim/step/program/stored_weights.h"

#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/rewrite.h"
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

absl::StatusOr<Graph> WidenWhereRead(const Graph& legal) {
  const auto find_widening = [&](ValueId v) -> const Node* {
    const Node* node = v == kNoValue ? nullptr : legal.producer(v);
    if (node == nullptr || !FindOp(node->op)->derive || node->inputs.size() != 1 || !legal.IsInput(node->inputs[0]))
      return nullptr;
    return legal.type(v).bytes() > legal.type(node->inputs[0]).bytes() ? node : nullptr;
  };
  ASSIGN_OR_RETURN(const Graph widened, Rewrite(legal, [&](Rewriter& r, const Node& reader) {
                     for (const ValueId v : reader.inputs) {
                       const Node* widening = find_widening(v);
                       if (widening != nullptr)
                         r.Set(v, r.b().Op(widening->op, r.MapOperands(*widening), widening->attrs));
                     }
                     return std::optional<std::vector<Val>>();
                   }));
  return Dce(widened);  // without the casts that no node reads now
}

}  // namespace onnxtrain
