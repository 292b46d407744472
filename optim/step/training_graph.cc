#include "optim/step/training_graph.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/dynamic_code.h"
#include "frontend/ops/formula.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/pass.h"
#include "optim/loop/lr_schedule.h"
#include "optim/step/gradient_scaling.h"
#include "optim/step/loss.h"
#include "optim/step/onnx_functions.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

// One for each label that is not ignored, or the weight of its class.
Val CountClasses(const LossTerm& term, const LossSpec& spec, Val labels, DType dtype) {
  Builder& b = labels.b();
  const Val ignored = Equal(labels, static_cast<double>(spec.ignore_index));
  Val weights = b.Scalar(dtype, 1);
  if (!spec.class_weights.empty() && term.function->takes.find("class_weights") != std::string_view::npos) {
    const Val table =
        b.Constant(HostTensor::FromDoubles({dtype, {std::ssize(spec.class_weights)}}, spec.class_weights));
    weights = Gather(table, Where(ignored, Number(labels, 0), labels), 0);
  }
  return ReduceSum(Where(ignored, b.Scalar(dtype, 0), weights), {}, false);
}

absl::StatusOr<Val> CountTargets(Builder& b, const LossTerm& term, const LossSpec& spec, int64_t batch, DType dtype) {
  if (term.onnx != nullptr && term.onnx->weighted) {
    ASSIGN_OR_RETURN(const Val weight, AppendOnnxLossWeight(b, *term.onnx, batch));
    return Cast(Reshape(weight, {}), dtype);
  }
  if (term.function->mean == LossMean::kSamples || term.form == LabelForm::kNone)
    return b.Scalar(dtype, static_cast<double>(batch));
  const Val labels = b.Wrap(b.graph().FindInput(term.feed)->value);
  if (term.form == LabelForm::kClasses || term.form == LabelForm::kSequence)
    return CountClasses(term, spec, labels, dtype);
  const int64_t per_target = term.form == LabelForm::kDistribution ? std::max<int64_t>(1, labels.dim(-1)) : 1;
  return b.Scalar(dtype, static_cast<double>(labels.type().elements() / per_target));
}

// Appends InverseDenominator(term, W) of a batch whose label feeds the graph has: a scalar of this type.
absl::StatusOr<Val> AppendInverseDenominator(Builder& b, const LossTerm& term, const LossSpec& spec, int64_t batch,
                                             DType dtype) {
  ASSIGN_OR_RETURN(const Val targets, CountTargets(b, term, spec, batch, dtype));
  return Masked(Greater(targets, 0.0), term.factor / targets);
}

// Outputs `value` under this name; unless `first`, adds the input of this name and goes `into` it.
void AccumulateOutput(Builder& b, const std::string& name, Val value, bool first) {
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

std::vector<ValueId> FloatFeeds(const Graph& graph) {
  std::vector<ValueId> ids;
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kFeed && IsFloat(graph.type(input.value).dtype)) ids.push_back(input.value);
  }
  return ids;
}

// The feeds whose gradients a micro program outputs.
std::vector<ValueId> GradientFeeds(const Graph& graph, const MicroOptions& options) {
  if (options.input_gradients) return FloatFeeds(graph);
  std::vector<ValueId> ids;
  for (const std::string& name : options.gradient_feeds) ids.push_back(graph.FindInput(name)->value);
  return ids;
}

// Adds the outputs of running statistics. The first micro-batch reads committed statistics and writes pending ones; the
// next ones read and write pending ones.
void AddStateOutputs(Graph& graph, const Graph& imported, const std::vector<StateUpdate>& updates, bool first) {
  for (const StateUpdate& update : updates) {
    const ValueId value = imported.FindOutput(update.output)->value;
    graph.AddOutput(update.output, value, first ? kNoValue : graph.FindInput(update.state)->value);
  }
}

constexpr const char kSchedule[] = "schedule", kClip[] = "clip", kCount[] = "count", kUpdate[] = "update ";

}  // namespace

bool IsUpdateSource(std::string_view source) {
  return source == kSchedule || source == kClip || source == kCount || source.starts_with(kUpdate);
}

std::string GradName(const std::string& parameter) { return "$grad:" + parameter; }
std::string WholeGradName(const std::string& group) { return "$whole_grad:" + group; }
std::string ParamName(const std::string& group) { return "$param:" + group; }
std::string ColumnsName(const std::string& weight) { return "$columns:" + weight; }
std::string MomentName(std::string_view state, const std::string& unit) { return StrCat("$", state, ":", unit); }

namespace {

void AccumulateLosses(Builder& b, const LossValues& loss, bool first) {
  for (size_t i = 0; i < loss.loss_sums.size(); ++i)
    AccumulateOutput(b, TermName(device_scalar::kBatchLoss, i), b.Wrap(loss.loss_sums[i]), first);
  AccumulateOutput(b, device_scalar::kBatchCorrect, b.Wrap(loss.correct), first);
}

struct Backward {
  LossValues loss;
  Val mean;                                            // of a standalone graph: Σ sum/W over the terms
  std::vector<std::pair<std::string, Val>> gradients;  // of every trained parameter, in graph order, then of `feeds`
};

// Returns the state input of this name; adds it where the graph has none.
Val FindOrAddState(Builder& b, const std::string& name, Type type) {
  const GraphInput* input = b.graph().FindInput(name);
  return input != nullptr ? b.Wrap(input->value) : b.Input(InputKind::kState, name, std::move(type));
}

struct BackwardOptions {
  bool scaled = false;         // by kLossScale
  bool standalone = false;     // count targets; else 1/W is fed
  std::vector<ValueId> feeds;  // whose gradients are wanted, too
  bool loss = true;
  std::vector<SeededValue> seeds = {};
};

// Returns factor/W of a term.
absl::StatusOr<Val> InverseDenominator(Builder& b, const LossChoice& choice, const LossSpec& spec, int64_t batch,
                                       size_t term, bool standalone, const Type& type) {
  if (standalone) return AppendInverseDenominator(b, choice.terms[term], spec, batch, type.dtype);
  return b.Input(InputKind::kFeed, TermName(kInverseDenominatorFeed, term), type);
}

// Appends the loss, and returns the seeds of its terms.
absl::StatusOr<std::vector<Seed>> AppendLoss(Builder& b, const LossChoice& choice, const LossSpec& spec, int64_t batch,
                                             const BackwardOptions& options, Backward* backward) {
  Graph& graph = b.graph();
  ASSIGN_OR_RETURN(backward->loss, AttachLoss(&graph, choice, spec, batch));
  b.set_source("loss");
  // The loss is Σ losses / W. Seeding the gradient of each sum with 1/W makes every split into micro-batches equal.
  std::vector<Seed> seeds;
  for (size_t i = 0; i < backward->loss.loss_sums.size(); ++i) {
    const ValueId sum = backward->loss.loss_sums[i];
    ASSIGN_OR_RETURN(const Val inverse,
                     InverseDenominator(b, choice, spec, batch, i, options.standalone, graph.type(sum)));
    const Val seed = options.scaled ? inverse * FindOrAddState(b, device_scalar::kLossScale, inverse.type()) : inverse;
    seeds.push_back({sum, seed.id()});
    if (!options.standalone) continue;
    const Val mean = b.Wrap(sum) * inverse;
    backward->mean = backward->mean ? backward->mean + mean : mean;
  }
  return seeds;
}

// Appends loss and backward pass.
absl::StatusOr<Backward> AppendBackward(Builder& b, const LossChoice& choice, const LossSpec& spec, int64_t batch,
                                        const BackwardOptions& options) {
  Graph& graph = b.graph();
  Backward backward;
  std::vector<Seed> seeds;
  if (options.loss) {
    ASSIGN_OR_RETURN(seeds, AppendLoss(b, choice, spec, batch, options, &backward));
  }
  for (const SeededValue& seeded : options.seeds)
    seeds.push_back({seeded.value, b.Input(InputKind::kFeed, seeded.feed, graph.type(seeded.value)).id()});
  std::vector<ValueId> inputs = TrainedInputs(graph);
  inputs.insert(inputs.end(), options.feeds.begin(), options.feeds.end());
  std::map<ValueId, ValueId> gradients;
  const auto differentiate = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(gradients, Differentiate(&graph, seeds, inputs));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunRewrite("differentiate", differentiate, {&graph}));
  for (ValueId input : inputs) {
    auto it = gradients.find(input);
    const std::string name = graph.inputs()[graph.value(input).index].name;
    backward.gradients.emplace_back(name, it != gradients.end() ? b.Wrap(it->second) : ZerosLike(b.Wrap(input)));
  }
  return backward;
}

}  // namespace

absl::StatusOr<Graph> BuildMicro(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                 int64_t batch, const MicroOptions& options) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  Builder b(&graph);
  const std::vector<ValueId> feeds = GradientFeeds(graph, options);
  ASSIGN_OR_RETURN(
      const Backward backward,
      AppendBackward(b, choice, loss, batch,
                     {.scaled = options.scaled, .feeds = feeds, .loss = options.loss, .seeds = options.seeds}));
  b.set_source("accumulate");
  if (options.loss) AccumulateLosses(b, backward.loss, options.first);
  const size_t trained = backward.gradients.size() - feeds.size();
  for (size_t i = 0; i < backward.gradients.size(); ++i) {
    const auto& [name, gradient] = backward.gradients[i];  // each micro-batch has inputs of its own
    AccumulateOutput(b, GradName(name), gradient, options.first || !options.accumulate || i >= trained);
  }
  AddStateOutputs(graph, model.graph, model.state_updates, options.first);
  if (options.outputs) {
    for (const std::string& name : model.outputs) graph.AddOutput(name, model.graph.FindOutput(name)->value);
  }
  RETURN_IF_ERROR(b.status());
  return graph;
}

absl::StatusOr<Graph> BuildEval(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const std::vector<Metric>& metrics) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  ASSIGN_OR_RETURN(const LossValues values, AttachLoss(&graph, choice, loss, batch));
  Builder b(&graph);
  AccumulateLosses(b, values, false);
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
    const auto low = model.low_precision_outputs.find(name);
    graph.AddOutput(name, low == model.low_precision_outputs.end() ? value : Cast(b.Wrap(value), low->second).id());
  }
  return graph;
}

namespace {

// A flat group or one parameter.
struct UpdateTarget {
  std::string name;  // of its moments: "STATE:NAME"
  std::string output;
  Val param, grad;
  UpdateRule rule;
  std::string weight = {};  // of which the target is a part; "": of none
  Shape weight_shape = {};
};

// In float64, as gradients of 1e20 are finite and their float32 squares are not.
Val Square(Val gradient) { return gradient.b().Op("SquaredNorm", {gradient}); }

Val SumOfSquares(Builder& b, const std::vector<Val>& gradients) {
  Val square = b.Scalar(DType::kFloat64, 0);
  for (const Val& gradient : gradients) square = square + Square(gradient);
  return square;
}

// False for NaN, too.
Val IsFinite(Val norm) { return Less(norm, norm.b().Scalar(norm.dtype(), std::numeric_limits<double>::infinity())); }

// Appends clipping, schedule, update and counters to a graph that computes or reads gradients.
class UpdateBuilder {
 public:
  UpdateBuilder(const UpdateSpec& spec, Graph* graph)
      : spec_{spec.dtype, Resolved(spec.optimizer), spec.schedule, spec.losses, spec.loss_scale},
        rule_(*FindRule(spec.optimizer)),
        graph_(*graph),
        b_(graph) {}

  Builder& b() { return b_; }
  Val State(const std::string& name, Type type) { return FindOrAddState(b_, name, std::move(type)); }
  Val Scalar(const std::string& name) { return State(name, {spec_.dtype, {}}); }
  Val GivenNorm() { return State(device_scalar::kSquaredNorm, {DType::kFloat64, {}}); }

  // `square` is the squared norm of the gradient; if it is invalid, the norm is computed from the targets. `apart`:
  // whether a target keeps its value depends on its own gradient alone.
  void Update(const std::vector<UpdateTarget>& targets, Val square = {}, bool apart = false) {
    Schedule();
    UpdateAtRate(targets, square, apart);
  }

  Val SquaredNorm(const std::vector<Val>& gradients) {
    b_.set_source(kClip);
    return SumOfSquares(b_, gradients);
  }

  // Appends an update that reads kRateFeed and kStep, for graphs that other runtimes run.
  void UpdateStandalone(const std::vector<UpdateTarget>& targets) {
    applied_ = Counter(kStep);
    step_ = Cast(applied_, spec_.dtype);
    rate_ = b_.Input(InputKind::kFeed, kRateFeed, {spec_.dtype, {}});
    UpdateAtRate(targets);
    graph_.AddOutput("$grad_norm", norm_.id());
    Store(kStep, applied_ + Cast(finite_, DType::kInt64), applied_);
  }

  // Adds the losses and correct predictions of the global batch to the sums of the report.
  void Count(const std::vector<Val>& batch_losses, Val batch_correct) {
    b_.set_source(kCount);
    for (size_t i = 0; i < batch_losses.size(); ++i) {
      AddTo(TermName(device_scalar::kSumLoss, i), batch_losses[i]);
      AddTo(TermName(device_scalar::kSumDenominator, i), Scalar(TermName(device_scalar::kBatchDenominator, i)));
    }
    AddTo(device_scalar::kSumCorrect, batch_correct);
    AddTo(device_scalar::kSumTargets, Scalar(device_scalar::kBatchTargets));
    Store(device_scalar::kNorm, norm_, Scalar(device_scalar::kNorm));
    Store(device_scalar::kRate, rate_, Scalar(device_scalar::kRate));
    const Val one = Cast(finite_, DType::kInt64);
    Store(device_scalar::kApplied, applied_ + one, applied_);
    const Val skipped = Counter(device_scalar::kSkipped), in_a_row = Counter(device_scalar::kSkippedInARow);
    Store(device_scalar::kSkipped, skipped + (1.0 - one), skipped);
    Store(device_scalar::kSkippedInARow, (in_a_row + 1.0) * (1.0 - one), in_a_row);
    if (spec_.loss_scale) AdjustLossScale();
  }

  void Store(const std::string& name, Val value, Val into) { graph_.AddOutput(name, value.id(), into.id()); }

 private:
  void UpdateAtRate(const std::vector<UpdateTarget>& targets, Val square = {}, bool apart = false) {
    std::vector<Val> gradients;
    for (const UpdateTarget& target : targets) gradients.push_back(target.grad);
    GradientNorm(square.valid() ? square : SquaredNorm(gradients));
    for (const UpdateTarget& target : targets) {
      applies_ = apart ? IsFinite(Square(target.grad)) : finite_;
      AppendUpdate(target);
    }
    applies_ = finite_;
  }

  Val Counter(const char* name) { return State(name, {DType::kInt64, {}}); }

  void AdjustLossScale() {
    const LossScale now{Scalar(device_scalar::kLossScale), Counter(device_scalar::kScaleApplied)};
    const LossScale next = NextLossScale(*spec_.loss_scale, now, finite_);
    Store(device_scalar::kLossScale, next.scale, now.scale);
    Store(device_scalar::kScaleApplied, next.applied, now.applied);
  }

  // Stores a value that skipped updates must not change.
  void StoreIfApplied(const std::string& name, Val value, Val into) { Store(name, Where(applies_, value, into), into); }

  void AddTo(const std::string& name, Val value) {
    const Val sum = Scalar(name);
    StoreIfApplied(name, sum + value, sum);
  }

  void Schedule() {
    b_.set_source(kSchedule);
    applied_ = Counter(device_scalar::kApplied);
    step_ = Cast(applied_, spec_.dtype);
    rate_ = ScheduleFactor(spec_.schedule, spec_.optimizer.lr, step_) * spec_.optimizer.lr;
    if (spec_.schedule.name == "plateau" || spec_.schedule.host_factor) rate_ = rate_ * Scalar(device_scalar::kPlateau);
  }

  // T = ‖g‖₂ over all gradients. A non-finite gradient makes T non-finite, so T alone decides whether to update.
  // Unscaling and clipping are one factor.
  void GradientNorm(Val square) {
    b_.set_source(kClip);
    Val norm = Sqrt(square), factor;
    if (spec_.loss_scale) {
      factor = b_.Op("Reciprocal", {Cast(Scalar(device_scalar::kLossScale), DType::kFloat64)});
      norm = norm * factor;
    }
    norm_ = Cast(norm, spec_.dtype);
    finite_ = IsFinite(norm);
    if (spec_.optimizer.max_grad_norm > 0) {
      const Val one = b_.Scalar(DType::kFloat64, 1), clip = Min(one, spec_.optimizer.max_grad_norm / (norm + 1e-6));
      factor = factor.valid() ? factor * clip : clip;
    }
    if (factor.valid()) factor_ = Cast(factor, spec_.dtype);
  }

  // Unscales and clips a gradient.
  Val Clipped(const UpdateTarget& target) {
    const OptimizerSpec& o = spec_.optimizer;
    Val grad = factor_.valid() ? target.grad * factor_ : target.grad;
    if (o.agc > 0) {
      const auto axis = o.output_axes.find(target.name);
      grad = ClipAdaptively(grad, target.param, o.agc, axis == o.output_axes.end() ? 0 : axis->second);
    }
    return o.clip_value > 0 ? b_.Op("Clip", {grad}, {{"min", -o.clip_value}, {"max", o.clip_value}}) : grad;
  }

  void AppendUpdate(const UpdateTarget& target) {
    b_.set_source(kUpdate + target.name);
    RuleContext c{.param = target.param,
                  .grad = Clipped(target),
                  .state = {},
                  .lr = target.rule.lr_factor == 1 ? rate_ : rate_ * target.rule.lr_factor,
                  .step = step_,
                  .weight_decay = target.rule.weight_decay,
                  .table = spec_.optimizer.tables.contains(target.name),
                  .spec = spec_.optimizer};
    const std::string average = MomentName(kAverage, target.name);
    if (rule_.averages) c.average = State(average, target.param.type());
    for (const RuleState& state : rule_.state) c.state.push_back(LoadState(state, target));
    const RuleResult result = rule_.update(c);
    StoreIfApplied(target.output, result.param, c.param);
    for (size_t i = 0; i < rule_.state.size(); ++i) StoreState(rule_.state[i], target, result.state[i]);
    if (rule_.averages) StoreIfApplied(average, result.average, c.average);
    if (spec_.optimizer.ema_decay > 0) Average(target, result.param);
  }

  // Returns the inputs of the tensors of a state.
  std::vector<Val> StoredInputs(const RuleState& state, const UpdateTarget& target) {
    std::vector<Val> inputs;
    const Shape shape = target.param.shape();
    const DType dtype = target.param.dtype();
    const auto stored = target.weight.empty()
                            ? state.Stored(spec_.optimizer, target.name, shape, dtype)
                            : state.StoredPart(spec_.optimizer, target.weight, target.weight_shape, shape[0], dtype);
    for (const StoredState& tensor : stored)
      inputs.push_back(State(MomentName(tensor.state, target.name), tensor.type));
    return inputs;
  }

  Val LoadState(const RuleState& state, const UpdateTarget& target) {
    const std::vector<Val> inputs = StoredInputs(state, target);
    return inputs.size() == 1 ? inputs[0] : DequantizeDynamic({inputs[0], inputs[1]}, state.is_signed());
  }

  // A skipped update keeps codes and scales: quantizing their numbers again could change them.
  void StoreState(const RuleState& state, const UpdateTarget& target, Val value) {
    const std::vector<Val> into = StoredInputs(state, target);
    std::vector<Val> values = {value};
    if (into.size() > 1) {
      const DynamicTensor quantized = QuantizeDynamic(value, state.is_signed());
      values = {quantized.codes, quantized.scales};
    }
    for (size_t i = 0; i < into.size(); ++i)
      StoreIfApplied(graph_.inputs()[graph_.value(into[i].id()).index].name, values[i], into[i]);
  }

  // e = d·e + (1 − d)·p.
  void Average(const UpdateTarget& target, Val param) {
    const double decay = spec_.optimizer.ema_decay;
    const std::string name = MomentName(kAverage, target.name);
    const Val average = State(name, target.param.type());
    StoreIfApplied(name, average * decay + param * (1 - decay), average);
  }

  const UpdateSpec spec_;  // resolved
  const OptimizerRule& rule_;
  Graph& graph_;
  Builder b_;
  Val applied_, step_, rate_, norm_, finite_;
  Val applies_;  // of the target whose update is appended; else finite_
  Val factor_;   // of every gradient; invalid: 1
};

}  // namespace

bool NeedsNormFirst(const OptimizerSpec& optimizer, bool scaled_loss) {
  return optimizer.in_backward && (optimizer.max_grad_norm > 0 || scaled_loss);
}

bool IsPerTensor(const OptimizerSpec& optimizer) {
  return FindRule(optimizer)->per_tensor || optimizer.agc > 0 || optimizer.weight_dtype == DType::kBFloat16;
}

bool UpdatesBlocks(const OptimizerSpec& optimizer) {
  return FindRule(optimizer)->in_blocks && WholeWeightReader(optimizer).empty();
}

std::string WholeWeightReader(const OptimizerSpec& optimizer) {
  const OptimizerRule& rule = *FindRule(optimizer);
  if (rule.per_tensor && !rule.in_blocks) return StrCat("`optimizer` ", optimizer.rule);
  if (optimizer.agc > 0) return "`agc`";
  return optimizer.weight_dtype == DType::kBFloat16 ? "`weight_dtype` bf16" : "";
}

absl::StatusOr<Graph> BuildApply(const UpdateSpec& spec, const std::vector<FlatGroup>& groups, int64_t state_elements,
                                 const std::vector<FlatGroup>& whole, bool has_norm) {
  Graph graph;
  UpdateBuilder u(spec, &graph);
  std::vector<UpdateTarget> targets;
  for (const FlatGroup& g : groups) {
    if (IsPerTensor(spec.optimizer) && g.weight.empty()) {
      for (const auto& [name, shape] : g.members) {
        const Type type{spec.dtype, shape};
        targets.push_back({name, "$updated:" + name, u.State(name, type), u.State(GradName(name), type), g.rule});
      }
      continue;
    }
    const Type flat{spec.dtype, {g.elements}};
    const std::string param = ParamName(g.name);
    targets.push_back(
        {g.name, param, u.State(param, flat), u.State(GradName(g.name), flat), g.rule, g.weight, g.weight_shape});
  }
  std::vector<Val> normed;
  for (const FlatGroup& g : whole) normed.push_back(u.State(WholeGradName(g.name), {spec.dtype, {g.elements}}));
  const Val whole_norm = normed.empty() ? Val() : u.SquaredNorm(normed);
  u.Update(targets, has_norm ? u.GivenNorm() : whole_norm);
  std::vector<Val> losses;
  for (size_t i = 0; i < spec.losses; ++i) losses.push_back(u.Scalar(TermName(device_scalar::kBatchLoss, i)));
  u.Count(losses, u.Scalar(device_scalar::kBatchCorrect));
  if (state_elements > 0) {  // committed even when the update is skipped: the samples were seen
    const Type flat{spec.dtype, {state_elements}};
    const Val pending = u.State(kPending, flat);
    u.Store(kStatistics, pending, u.State(kStatistics, flat));
  }
  RETURN_IF_ERROR(u.b().status());
  return graph;
}

Graph BuildSquaredNorm(DType dtype, const std::vector<FlatGroup>& groups) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> gradients;
  for (const FlatGroup& g : groups)
    gradients.push_back(b.Input(InputKind::kState, GradName(g.name), {dtype, {g.elements}}));
  graph.AddOutput(device_scalar::kSquaredNorm, SumOfSquares(b, gradients).id());
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

namespace {

std::vector<UpdateTarget> ListTargets(Builder& b, const Backward& backward,
                                      const std::map<std::string, UpdateRule>& rules) {
  std::vector<UpdateTarget> targets;
  for (const auto& [name, gradient] : backward.gradients) {
    const Val param = b.Wrap(b.graph().FindInput(name)->value);
    targets.push_back({name, "$updated:" + name, param, gradient, rules.at(name)});
  }
  return targets;
}

}  // namespace

absl::StatusOr<Graph> BuildNorm(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const UpdateSpec& spec) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  Builder b(&graph);
  ASSIGN_OR_RETURN(const Backward backward,
                   AppendBackward(b, choice, loss, batch, {.scaled = spec.loss_scale.has_value()}));
  b.set_source(kClip);
  std::vector<Val> gradients;
  for (const auto& [name, gradient] : backward.gradients) gradients.push_back(gradient);
  graph.AddOutput(device_scalar::kSquaredNorm, SumOfSquares(b, gradients).id());
  // As in a step, which updates the weights, nothing that is derived from them is kept.
  for (const ValueId weight : TrainedInputs(graph)) graph.SetInputKind(graph.value(weight).index, InputKind::kState);
  RETURN_IF_ERROR(b.status());
  return graph;
}

absl::StatusOr<Graph> BuildStep(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const UpdateSpec& spec, const std::map<std::string, UpdateRule>& rules) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  UpdateBuilder u(spec, &graph);
  ASSIGN_OR_RETURN(const Backward backward,
                   AppendBackward(u.b(), choice, loss, batch, {.scaled = spec.loss_scale.has_value()}));
  const bool given = NeedsNormFirst(spec.optimizer, spec.loss_scale.has_value());
  u.Update(ListTargets(u.b(), backward, rules), given ? u.GivenNorm() : Val(), spec.optimizer.in_backward && !given);
  std::vector<Val> losses;
  for (ValueId sum : backward.loss.loss_sums) losses.push_back(u.b().Wrap(sum));
  u.Count(losses, u.b().Wrap(backward.loss.correct));
  AddStateOutputs(graph, model.graph, model.state_updates, false);
  RETURN_IF_ERROR(u.b().status());
  return graph;
}

absl::StatusOr<Graph> BuildGradientGraph(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                         int64_t batch, bool input_gradients) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  Builder b(&graph);
  BackwardOptions options{.standalone = true};
  if (input_gradients) options.feeds = FloatFeeds(graph);
  ASSIGN_OR_RETURN(const Backward backward, AppendBackward(b, choice, loss, batch, options));
  graph.AddOutput("loss", backward.mean.id());
  for (const auto& [name, gradient] : backward.gradients) graph.AddOutput(name + "_grad", gradient.id());
  for (const std::string& name : model.outputs) {
    if (graph.FindOutput(name) == nullptr) graph.AddOutput(name, model.graph.FindOutput(name)->value);
  }
  RETURN_IF_ERROR(b.status());
  return graph;
}

absl::StatusOr<Graph> BuildUpdateGraph(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                       int64_t batch, const UpdateSpec& spec,
                                       const std::map<std::string, UpdateRule>& rules) {
  Graph graph = model.graph;
  graph.ClearOutputs();
  UpdateBuilder u(spec, &graph);
  ASSIGN_OR_RETURN(const Backward backward, AppendBackward(u.b(), choice, loss, batch, {.standalone = true}));
  graph.AddOutput("loss", backward.mean.id());
  u.UpdateStandalone(ListTargets(u.b(), backward, rules));
  AddStateOutputs(graph, model.graph, model.state_updates, false);
  RETURN_IF_ERROR(u.b().status());
  return graph;
}

}  // namespace onnxtrain
