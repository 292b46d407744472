#include "optim/training_graph.h"

#include <limits>
#include <map>

#include "frontend/base/status.h"
#include "frontend/passes/differentiate.h"
#include "optim/lr_schedule.h"
#include "optim/rules/rule.h"

namespace onnxtrain {
namespace {

// Writes `value` into a pending slot: as the output of that name, or added to the input of that name.
void Pend(Builder& b, const std::string& name, Val value, bool first) {
  if (first) {
    b.graph().AddOutput(name, value.id());
    return;
  }
  const Val sum = b.Input(InputKind::kState, name, value.type());
  b.graph().AddOutput(name, (sum + value).id(), sum.id());
}

std::vector<ValueId> TrainedInputs(const Graph& graph) {
  std::vector<ValueId> ids;
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kParameter) ids.push_back(input.value);
  }
  return ids;
}

// The outputs that the imported graph has for its running statistics. The first micro-batch of a window reads committed
// statistics and writes pending ones; the next ones read and write pending ones.
void AddStateOutputs(Graph& graph, const Graph& imported, const std::vector<StateUpdate>& updates, bool first) {
  for (const StateUpdate& update : updates) {
    const ValueId value = imported.FindOutput(update.output)->value;
    graph.AddOutput(update.output, value, first ? kNoValue : graph.FindInput(update.state)->value);
  }
}

}  // namespace

std::string GradName(const std::string& parameter) { return "grad:" + parameter; }

absl::StatusOr<Graph> BuildMicro(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch,
                                 const MicroOptions& options) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  ASSIGN_OR_RETURN(const LossValues values, AttachLoss(&graph, choice, loss, batch));
  Builder b(&graph);
  b.set_source("loss");
  // The loss of a window is Σ losses / W: seeding the sum's gradient with 1/W makes any split of the window equal.
  const Val inv_weight = b.Input(InputKind::kFeed, kInvWeightFeed, graph.type(values.loss_sum));
  const std::vector<ValueId> trained = TrainedInputs(graph);
  ASSIGN_OR_RETURN(const auto gradients, Differentiate(&graph, values.loss_sum, trained, inv_weight.id()));
  b.set_source("accumulate");
  Pend(b, slot::kWindowLoss, b.Wrap(values.loss_sum), options.first);
  Pend(b, slot::kWindowCorrect, b.Wrap(values.correct), options.first);
  for (ValueId parameter : trained) {
    const std::string name = graph.inputs()[graph.value(parameter).index].name;
    auto it = gradients.find(parameter);
    const Val gradient = it != gradients.end() ? b.Wrap(it->second) : ZerosLike(b.Wrap(parameter));
    Pend(b, GradName(name), gradient, options.first);
  }
  AddStateOutputs(graph, model.graph, model.state_updates, options.first);
  if (options.outputs) {
    for (const std::string& name : model.outputs) graph.AddOutput(name, model.graph.FindOutput(name)->value);
  }
  RETURN_IF_ERROR(b.status());
  return graph;
}

absl::StatusOr<Graph> BuildEval(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  ASSIGN_OR_RETURN(const LossValues values, AttachLoss(&graph, choice, loss, batch));
  Builder b(&graph);
  Pend(b, slot::kWindowLoss, b.Wrap(values.loss_sum), false);
  Pend(b, slot::kWindowCorrect, b.Wrap(values.correct), false);
  RETURN_IF_ERROR(b.status());
  return graph;
}

Graph BuildPredict(const ImportedModel& model) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  for (const std::string& name : model.outputs) graph.AddOutput(name, model.graph.FindOutput(name)->value);
  return graph;
}

namespace {

class ApplyBuilder {
 public:
  explicit ApplyBuilder(const ApplySpec& spec) : spec_(spec), b_(&graph_) {}

  absl::StatusOr<Graph> Build() {
    ReadInputs();
    GradientNorm();
    for (size_t i = 0; i < spec_.groups.size(); ++i) UpdateGroup(spec_.groups[i], grads_[i]);
    Count();
    CommitStatistics();
    RETURN_IF_ERROR(b_.status());
    return std::move(graph_);
  }

 private:
  Val State(const std::string& name, Type type) { return b_.Input(InputKind::kState, name, std::move(type)); }
  Val Scalar(const std::string& name) { return State(name, {spec_.dtype, {}}); }
  void Store(const std::string& name, Val value, Val into) { graph_.AddOutput(name, value.id(), into.id()); }
  // The new value of a slot that only applied updates change.
  void StoreIfApplied(const std::string& name, Val value, Val into) { Store(name, Where(finite_, value, into), into); }

  void ReadInputs() {
    b_.set_source("schedule");
    applied_ = State(slot::kApplied, {DType::kInt64, {}});
    step_ = Cast(applied_, spec_.dtype);
    rate_ = ScheduleFactor(spec_.schedule, spec_.optimizer.lr, step_) * spec_.optimizer.lr;
    for (const FlatGroup& g : spec_.groups) grads_.push_back(State(GradName(g.name), {spec_.dtype, {g.elements}}));
  }

  // T = ‖g‖₂ over all groups; one non-finite gradient makes T non-finite, so T alone decides whether to update.
  void GradientNorm() {
    b_.set_source("clip");
    Val square = b_.Scalar(spec_.dtype, 0);
    for (Val g : grads_) square = square + ReduceSum(g * g, {}, false);
    norm_ = Sqrt(square);
    finite_ = Less(norm_, b_.Scalar(spec_.dtype, std::numeric_limits<double>::infinity()));  // false for NaN, too
    if (spec_.optimizer.max_grad_norm > 0) {
      clip_ = b_.Op("Min", {b_.Scalar(spec_.dtype, 1), spec_.optimizer.max_grad_norm / (norm_ + 1e-6)});
    }
  }

  void UpdateGroup(const FlatGroup& group, Val grad) {
    b_.set_source("update " + group.name);
    const Rule& rule = *FindRule(spec_.optimizer);
    const Type type{spec_.dtype, {group.elements}};
    RuleContext c{.param = State("param:" + group.name, type), .grad = clip_.valid() ? grad * clip_ : grad, .state = {},
                  .lr = rate_, .step = step_, .weight_decay = group.weight_decay, .spec = spec_.optimizer};
    for (std::string_view name : rule.state) c.state.push_back(State(StrCat(name, ":", group.name), type));
    const RuleResult result = rule.update(c);
    StoreIfApplied("param:" + group.name, result.param, c.param);
    for (size_t i = 0; i < rule.state.size(); ++i) {
      StoreIfApplied(StrCat(rule.state[i], ":", group.name), result.state[i], c.state[i]);
    }
  }

  void Add(const char* sum_name, const char* pending_name) {
    const Val sum = Scalar(sum_name);
    StoreIfApplied(sum_name, sum + Scalar(pending_name), sum);
  }

  void Count() {
    b_.set_source("count");
    Add(slot::kSumLoss, slot::kWindowLoss);
    Add(slot::kSumCorrect, slot::kWindowCorrect);
    Add(slot::kSumWeight, slot::kWindowWeight);
    Store(slot::kNorm, norm_, Scalar(slot::kNorm));
    Store(slot::kRate, rate_, Scalar(slot::kRate));
    const Val one = Cast(finite_, DType::kInt64);
    Store(slot::kApplied, applied_ + one, applied_);
    const Val skipped = State(slot::kSkipped, {DType::kInt64, {}});
    Store(slot::kSkipped, skipped + (1.0 - one), skipped);
  }

  // Statistics are committed even when the update is skipped: the samples were seen.
  void CommitStatistics() {
    if (spec_.state_elements == 0) return;
    const Type type{spec_.dtype, {spec_.state_elements}};
    Store("state", State("pending", type), State("state", type));
  }

  const ApplySpec& spec_;
  Graph graph_;
  Builder b_;
  Val applied_, step_, rate_, norm_, finite_, clip_;
  std::vector<Val> grads_;
};

}  // namespace

absl::StatusOr<Graph> BuildApply(const ApplySpec& spec) { return ApplyBuilder(spec).Build(); }

}  // namespace onnxtrain
