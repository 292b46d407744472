#include "optim/training_graph.h"

#include <limits>
#include <map>

#include "frontend/base/status.h"
#include "frontend/passes/differentiate.h"
#include "optim/clip.h"
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

namespace {
constexpr const char kSchedule[] = "schedule", kClip[] = "clip", kCount[] = "count", kUpdate[] = "update ";
}  // namespace

bool IsUpdateSource(std::string_view source) {
  return source == kSchedule || source == kClip || source == kCount || source.starts_with(kUpdate);
}

std::string GradName(const std::string& parameter) { return "$grad:" + parameter; }
std::string ParamName(const std::string& group) { return "$param:" + group; }
std::string MomentName(std::string_view state, const std::string& unit) { return StrCat("$", state, ":", unit); }

namespace {

void PendLosses(Builder& b, const LossValues& loss, bool first) {
  for (size_t i = 0; i < loss.loss_sums.size(); ++i) Pend(b, OfTerm(slot::kWindowLoss, i), b.Wrap(loss.loss_sums[i]), first);
  Pend(b, slot::kWindowCorrect, b.Wrap(loss.correct), first);
}

struct Backward {
  LossValues loss;
  std::vector<std::pair<std::string, Val>> gradients;  // of every trained parameter, in graph order
};

// A slot that one graph reads in several places is one input.
Val Slot(Builder& b, const std::string& name, Type type) {
  const GraphInput* input = b.graph().FindInput(name);
  return input != nullptr ? b.Wrap(input->value) : b.Input(InputKind::kState, name, std::move(type));
}

// Appends loss and backward pass.
absl::StatusOr<Backward> AppendBackward(Builder& b, const LossChoice& choice, const LossSpec& spec, int64_t batch, bool scaled) {
  Graph& graph = b.graph();
  Backward backward;
  ASSIGN_OR_RETURN(backward.loss, AttachLoss(&graph, choice, spec, batch));
  b.set_source("loss");
  // The loss of a window is Σ losses / W: seeding the sum's gradient with 1/W makes any split of the window equal.
  std::vector<Seed> seeds;
  for (size_t i = 0; i < backward.loss.loss_sums.size(); ++i) {
    const ValueId sum = backward.loss.loss_sums[i];
    const Val inv_weight = b.Input(InputKind::kFeed, OfTerm(kInvWeightFeed, i), graph.type(sum));
    seeds.push_back({sum, (scaled ? inv_weight * Slot(b, slot::kLossScale, inv_weight.type()) : inv_weight).id()});
  }
  const std::vector<ValueId> trained = TrainedInputs(graph);
  ASSIGN_OR_RETURN(const auto gradients, Differentiate(&graph, seeds, trained));
  for (ValueId parameter : trained) {
    auto it = gradients.find(parameter);
    const std::string name = graph.inputs()[graph.value(parameter).index].name;
    backward.gradients.emplace_back(name, it != gradients.end() ? b.Wrap(it->second) : ZerosLike(b.Wrap(parameter)));
  }
  return backward;
}

}  // namespace

absl::StatusOr<Graph> BuildMicro(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch,
                                 const MicroOptions& options) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  Builder b(&graph);
  ASSIGN_OR_RETURN(const Backward backward, AppendBackward(b, choice, loss, batch, options.scaled));
  b.set_source("accumulate");
  PendLosses(b, backward.loss, options.first);
  for (const auto& [name, gradient] : backward.gradients) Pend(b, GradName(name), gradient, options.first);
  AddStateOutputs(graph, model.graph, model.state_updates, options.first);
  if (options.outputs) {
    for (const std::string& name : model.outputs) graph.AddOutput(name, model.graph.FindOutput(name)->value);
  }
  RETURN_IF_ERROR(b.status());
  return graph;
}

absl::StatusOr<Graph> BuildEval(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch,
                                const std::vector<Metric>& metrics) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  ASSIGN_OR_RETURN(const LossValues values, AttachLoss(&graph, choice, loss, batch));
  Builder b(&graph);
  PendLosses(b, values, false);
  RETURN_IF_ERROR(b.status());
  RETURN_IF_ERROR(AttachMetrics(&graph, metrics, choice, loss));
  return graph;
}

Graph BuildPredict(const ImportedModel& model) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  Builder b(&graph);
  for (const std::string& name : model.outputs) {
    const ValueId value = model.graph.FindOutput(name)->value;
    const auto half = model.halves.find(name);
    graph.AddOutput(name, half == model.halves.end() ? value : Cast(b.Wrap(value), half->second).id());
  }
  return graph;
}

namespace {

// One thing that the rule updates: a flat group or one parameter.
struct Unit {
  std::string name;  // of its moments: "STATE:NAME"
  std::string output;
  Val param, grad;
  UpdateRule rule;
};

// Appends the second half of a step to a graph that has the gradients.
class UpdateBuilder {
 public:
  UpdateBuilder(const UpdateSpec& spec, Graph* graph)
      : spec_{spec.dtype, Resolved(spec.optimizer), spec.schedule, spec.losses, spec.loss_scale}, rule_(*FindRule(spec.optimizer)),
        graph_(*graph), b_(graph) {}

  bool per_tensor() const { return rule_.per_tensor || spec_.optimizer.agc > 0; }

  Builder& b() { return b_; }
  Val State(const std::string& name, Type type) { return Slot(b_, name, std::move(type)); }
  Val Scalar(const std::string& name) { return State(name, {spec_.dtype, {}}); }

  void Update(const std::vector<Unit>& units) {
    Schedule();
    GradientNorm(units);
    for (const Unit& unit : units) UpdateUnit(unit);
  }

  // The sum of each loss over the window, and the predictions that hit.
  void Count(const std::vector<Val>& window_losses, Val window_correct) {
    b_.set_source(kCount);
    for (size_t i = 0; i < window_losses.size(); ++i) {
      AddTo(OfTerm(slot::kSumLoss, i), window_losses[i]);
      AddTo(OfTerm(slot::kSumWeight, i), Scalar(OfTerm(slot::kWindowWeight, i)));
    }
    AddTo(slot::kSumCorrect, window_correct);
    AddTo(slot::kSumTargets, Scalar(slot::kWindowTargets));
    Store(slot::kNorm, norm_, Scalar(slot::kNorm));
    Store(slot::kRate, rate_, Scalar(slot::kRate));
    const Val one = Cast(finite_, DType::kInt64);
    Store(slot::kApplied, applied_ + one, applied_);
    const Val skipped = Counter(slot::kSkipped), in_a_row = Counter(slot::kSkippedInARow);
    Store(slot::kSkipped, skipped + (1.0 - one), skipped);
    Store(slot::kSkippedInARow, (in_a_row + 1.0) * (1.0 - one), in_a_row);
    if (spec_.loss_scale) AdjustLossScale();
  }

  void Store(const std::string& name, Val value, Val into) { graph_.AddOutput(name, value.id(), into.id()); }

 private:
  Val Counter(const char* name) { return State(name, {DType::kInt64, {}}); }

  void AdjustLossScale() {
    const LossScale now{Scalar(slot::kLossScale), Counter(slot::kScaleApplied)};
    const LossScale next = NextLossScale(*spec_.loss_scale, now, finite_);
    Store(slot::kLossScale, next.scale, now.scale);
    Store(slot::kScaleApplied, next.applied, now.applied);
  }

  // The new value of something that only applied updates change.
  void StoreIfApplied(const std::string& name, Val value, Val into) { Store(name, Where(finite_, value, into), into); }

  void AddTo(const std::string& name, Val value) {
    const Val sum = Scalar(name);
    StoreIfApplied(name, sum + value, sum);
  }

  void Schedule() {
    b_.set_source(kSchedule);
    applied_ = Counter(slot::kApplied);
    step_ = Cast(applied_, spec_.dtype);
    rate_ = ScheduleFactor(spec_.schedule, spec_.optimizer.lr, step_) * spec_.optimizer.lr;
    if (spec_.schedule.name == "plateau") rate_ = rate_ * Scalar(slot::kPlateau);
  }

  // T = ‖g‖₂ over all units; one non-finite gradient makes T non-finite, so T alone decides whether to update. In double
  // precision: gradients of 1e20 are finite, their squares are not. What unscales the loss and what clips is one factor.
  void GradientNorm(const std::vector<Unit>& units) {
    b_.set_source(kClip);
    Val square = b_.Scalar(DType::kFloat64, 0);
    for (const Unit& unit : units) square = square + b_.Op("SquaredNorm", {unit.grad});
    Val norm = Sqrt(square), factor;
    if (spec_.loss_scale) {
      factor = b_.Op("Reciprocal", {Cast(Scalar(slot::kLossScale), DType::kFloat64)});
      norm = norm * factor;
    }
    norm_ = Cast(norm, spec_.dtype);
    finite_ = Less(norm, b_.Scalar(DType::kFloat64, std::numeric_limits<double>::infinity()));  // false for NaN, too
    if (spec_.optimizer.max_grad_norm > 0) {
      const Val clip = b_.Op("Min", {b_.Scalar(DType::kFloat64, 1), spec_.optimizer.max_grad_norm / (norm + 1e-6)});
      factor = factor.valid() ? factor * clip : clip;
    }
    if (factor.valid()) factor_ = Cast(factor, spec_.dtype);
  }

  // Unscaled and clipped in every way that is asked for.
  Val Clipped(const Unit& unit) {
    const OptimizerSpec& o = spec_.optimizer;
    Val grad = factor_.valid() ? unit.grad * factor_ : unit.grad;
    if (o.agc > 0) {
      const auto axis = o.output_axes.find(unit.name);
      grad = ClipToWeights(grad, unit.param, o.agc, axis == o.output_axes.end() ? 0 : axis->second);
    }
    return o.clip_value > 0 ? b_.Op("Clip", {grad}, {{"min", -o.clip_value}, {"max", o.clip_value}}) : grad;
  }

  void UpdateUnit(const Unit& unit) {
    b_.set_source(kUpdate + unit.name);
    RuleContext c{.param = unit.param, .grad = Clipped(unit), .state = {},
                  .lr = unit.rule.lr_factor == 1 ? rate_ : rate_ * unit.rule.lr_factor,
                  .step = step_, .weight_decay = unit.rule.weight_decay, .spec = spec_.optimizer};
    for (const RuleState& state : rule_.state) {
      const Shape shape = state.shape == nullptr ? unit.param.shape() : state.shape(unit.param.shape());
      c.state.push_back(State(MomentName(state.name, unit.name), {unit.param.dtype(), shape}));
    }
    const RuleResult result = rule_.update(c);
    StoreIfApplied(unit.output, result.param, c.param);
    for (size_t i = 0; i < rule_.state.size(); ++i) {
      StoreIfApplied(MomentName(rule_.state[i].name, unit.name), result.state[i], c.state[i]);
    }
    if (spec_.optimizer.ema_decay > 0) Average(unit, result.param);
  }

  // e = d·e + (1 − d)·p.
  void Average(const Unit& unit, Val param) {
    const double decay = spec_.optimizer.ema_decay;
    const std::string name = MomentName(kAverage, unit.name);
    const Val average = State(name, unit.param.type());
    StoreIfApplied(name, average * decay + param * (1 - decay), average);
  }

  const UpdateSpec spec_;  // resolved
  const OptimizerRule& rule_;
  Graph& graph_;
  Builder b_;
  Val applied_, step_, rate_, norm_, finite_;
  Val factor_;  // of every gradient; invalid: 1
};

}  // namespace

absl::StatusOr<Graph> BuildApply(const UpdateSpec& spec, const std::vector<FlatGroup>& groups, int64_t state_elements) {
  Graph graph;
  UpdateBuilder u(spec, &graph);
  std::vector<Unit> units;
  for (const FlatGroup& g : groups) {
    if (u.per_tensor()) {
      for (const auto& [name, shape] : g.members) {
        const Type type{spec.dtype, shape};
        units.push_back({name, "$updated:" + name, u.State(name, type), u.State(GradName(name), type), g.rule});
      }
      continue;
    }
    const Type flat{spec.dtype, {g.elements}};
    const std::string param = ParamName(g.name);
    units.push_back({g.name, param, u.State(param, flat), u.State(GradName(g.name), flat), g.rule});
  }
  u.Update(units);
  std::vector<Val> losses;
  for (size_t i = 0; i < spec.losses; ++i) losses.push_back(u.Scalar(OfTerm(slot::kWindowLoss, i)));
  u.Count(losses, u.Scalar(slot::kWindowCorrect));
  if (state_elements > 0) {  // committed even when the update is skipped: the samples were seen
    const Type flat{spec.dtype, {state_elements}};
    const Val pending = u.State(kPending, flat);
    u.Store(kStatistics, pending, u.State(kStatistics, flat));
  }
  RETURN_IF_ERROR(u.b().status());
  return graph;
}

Graph BuildSwap(DType dtype, const std::vector<FlatGroup>& groups) {
  Graph graph;
  for (const FlatGroup& g : groups) {
    const std::string param = ParamName(g.name), average = MomentName(kAverage, g.name);
    const ValueId p = graph.AddInput(InputKind::kState, param, {dtype, {g.elements}});
    const ValueId a = graph.AddInput(InputKind::kState, average, {dtype, {g.elements}});
    graph.AddOutput(param, a, p);
    graph.AddOutput(average, p, a);
  }
  return graph;
}

absl::StatusOr<Graph> BuildStep(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch,
                                const UpdateSpec& spec, const std::map<std::string, UpdateRule>& rules) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  UpdateBuilder u(spec, &graph);
  ASSIGN_OR_RETURN(const Backward backward, AppendBackward(u.b(), choice, loss, batch, spec.loss_scale.has_value()));
  std::vector<Unit> units;
  for (const auto& [name, gradient] : backward.gradients) {
    const Val param = u.b().Wrap(graph.FindInput(name)->value);
    units.push_back({name, "$updated:" + name, param, gradient, rules.at(name)});
  }
  u.Update(units);
  std::vector<Val> losses;
  for (ValueId sum : backward.loss.loss_sums) losses.push_back(u.b().Wrap(sum));
  u.Count(losses, u.b().Wrap(backward.loss.correct));
  AddStateOutputs(graph, model.graph, model.state_updates, false);
  RETURN_IF_ERROR(u.b().status());
  return graph;
}

}  // namespace onnxtrain
