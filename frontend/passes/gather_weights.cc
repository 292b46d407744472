#include "frontend/passes/gather_weights.h"

#include <algorithm>
#include <set>
#include <vector>

#include "frontend/ops/row.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

class Gatherer {
 public:
  Gatherer(const Graph& graph, const GatherWeightsOptions& options) : graph_(graph), options_(options) {
    for (const GraphInput& input : graph.inputs()) {
      const auto found = options.weights.find(input.name);
      if (found != options.weights.end()) weights_[input.value] = {&found->second, graph.type(input.value), {}, {}, 0};
    }
    for (const GraphOutput& output : graph.outputs()) results_.insert(output.value);
  }

  std::optional<std::vector<Val>> Rewrite(Rewriter& r, const Node& node) {
    if (std::ranges::none_of(node.inputs, [&](ValueId v) { return IsDeferred(v); })) return std::nullopt;
    if (IsCheap(node)) {
      deferred_[node.outputs[0]] = {&node, {}, {}};
      return std::vector<Val>(1);
    }
    std::vector<Val> operands;
    for (const ValueId v : node.inputs) operands.push_back(IsDeferred(v) ? Compute(r, v) : r.Map(v));
    return r.b().Ops(node.op, operands, node.attrs);
  }

 private:
  struct Weight {
    const WeightColumns* columns = nullptr;
    Type type;
    Val input, whole;
    size_t at = 0;  // bytes gathered before it
  };
  // A value of one weight alone.
  struct Deferred {
    const Node* node = nullptr;
    Val of, value;
  };

  bool IsDeferred(ValueId v) const { return weights_.contains(v) || deferred_.contains(v); }

  bool IsCheap(const Node& node) const {
    const OpRow& row = *FindOp(node.op);
    return node.inputs.size() == 1 && node.outputs.size() == 1 && (row.view || row.derive) &&
           !results_.contains(node.outputs[0]);
  }

  Val Compute(Rewriter& r, ValueId v) {
    if (const auto weight = weights_.find(v); weight != weights_.end()) return Gather(r, &weight->second);
    Deferred& deferred = deferred_.at(v);
    const Val operand = Compute(r, deferred.node->inputs[0]);
    if (!deferred.value || deferred.of.id() != operand.id()) {
      deferred.of = operand;
      deferred.value = r.b().Op(deferred.node->op, {operand}, deferred.node->attrs);
    }
    return deferred.value;
  }

  Val Gather(Rewriter& r, Weight* weight) {
    if (weight->whole && gathered_ - weight->at <= options_.keep) return weight->whole;
    Builder& b = r.b();
    const WeightColumns& columns = *weight->columns;
    if (!weight->input) weight->input = b.Input(InputKind::kState, columns.input, columns.type);
    std::vector<Val> inputs = {weight->input};
    if (token_) inputs.push_back(token_);  // or else two gathers would be one common subexpression
    const std::vector<Val> outputs = b.Ops(
        "AllGather", inputs, {{"group", options_.group.name}, {"ranks", options_.group.size}, {"axis", int64_t{1}}});
    token_ = outputs[1];
    const int64_t elements = weight->type.elements(), all = columns.type.elements() * options_.group.size;
    Val flat = Reshape(outputs[0], {all});
    if (elements < all)
      flat = b.Op("Slice", {flat},
                  {{"starts", std::vector<int64_t>{0}},
                   {"sizes", std::vector<int64_t>{elements}},
                   {"steps", std::vector<int64_t>{1}}});
    weight->whole = Reshape(flat, weight->type.shape);
    gathered_ += weight->type.bytes();
    weight->at = gathered_;
    return weight->whole;
  }

  const Graph& graph_;
  const GatherWeightsOptions& options_;
  std::map<ValueId, Weight> weights_;
  std::map<ValueId, Deferred> deferred_;
  std::set<ValueId> results_;
  Val token_;
  size_t gathered_ = 0;  // bytes
};

}  // namespace

absl::StatusOr<Graph> GatherWeights(const Graph& graph, const GatherWeightsOptions& options) {
  Gatherer gatherer(graph, options);
  auto gathered = Rewrite(graph, [&](Rewriter& r, const Node& node) { return gatherer.Rewrite(r, node); });
  if (!gathered.ok()) return gathered;
  return Dce(*gathered, {.drop_unused_weights = true});
}

}  // namespace onnxtrain
