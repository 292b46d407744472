#include "optim/step/onnx_functions.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/interop/training_info.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Appends a copy of the graph of `model` with its inputs replaced by `inputs`; its weights become constants. The
// sources of nodes get the prefix, "loss", and so does the builder in the end. Returns the copies by value id; errors
// are b.status().
std::map<ValueId, Val> SpliceModel(Builder& b, const ImportedModel& model, const std::map<std::string, Val>& inputs,
                                   std::string_view prefix) {
  std::map<ValueId, Val> values;
  std::map<std::string, const HostTensor*> weights;
  for (const ImportedWeight& w : model.weights) weights[w.name] = &w.value;
  for (const GraphInput& input : model.graph.inputs()) {
    const auto given = inputs.find(input.name);
    values[input.value] = given != inputs.end() ? given->second : b.Constant(*weights.at(input.name));
  }
  for (const Node& node : model.graph.nodes()) {
    std::vector<Val> operands;
    for (ValueId v : node.inputs) operands.push_back(v == kNoValue ? Val() : values.at(v));
    b.set_source(StrCat(prefix, "/", *node.source));
    const std::vector<Val> results = b.Ops(node.op, std::move(operands), node.attrs);
    for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = i < results.size() ? results[i] : Val();
  }
  b.set_source(std::string(prefix));
  return values;
}

constexpr char kLossSum[] = "loss_sum", kWeight[] = "weight";

Shape WithBatch(Shape sample, int64_t batch) {
  sample.insert(sample.begin(), batch);
  return sample;
}

absl::StatusOr<ImportedModel> ImportLoss(const OnnxLoss& loss, int64_t batch) {
  ImportOptions options{.batch = batch, .float_type = loss.float_type};
  for (const OnnxLossInput& input : loss.inputs) {
    Shape& shape = options.input_shapes[input.name] = input.type.shape;
    if (!shape.empty()) shape[0] = batch;
  }
  ASSIGN_OR_RETURN(ImportedModel imported, Import(*loss.model, options));
  if (!imported.random_key.empty()) return Invalid(loss.model->path(), ": a loss cannot draw random numbers");
  return imported;
}

// Returns true if the value depends on a prediction.
bool FollowsFromPrediction(const Graph& graph, ValueId value, const OnnxLoss& loss) {
  std::set<ValueId> predicted;
  for (const OnnxLossInput& input : loss.inputs) {
    const GraphInput* found = graph.FindInput(input.name);
    if (input.prediction && found != nullptr) predicted.insert(found->value);
  }
  for (const Node& node : graph.nodes()) {
    const bool reads =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return predicted.contains(v); });
    if (reads) predicted.insert(node.outputs.begin(), node.outputs.end());
  }
  return predicted.contains(value);
}

std::string Described(const ImportedModel& loss) {
  return absl::StrJoin(loss.outputs, ", ", [&](std::string* out, const std::string& name) {
    StrAppend(out, "'", name, "' ", ToString(loss.graph.type(loss.graph.FindOutput(name)->value)));
  });
}

// Classifies and checks the outputs of the loss.
absl::Status CheckOutputs(const ImportedModel& imported, int64_t batch, OnnxLoss* loss) {
  const GraphOutput *sum = imported.graph.FindOutput(kLossSum), *weight = imported.graph.FindOutput(kWeight);
  const std::string expected = StrCat(loss->model->path(), ": gives ", Described(imported),
                                      "; a loss gives loss_sum and weight, or one loss per sample [", batch, "]");
  const auto is_scalar = [&](const GraphOutput* o) {
    return IsFloat(imported.graph.type(o->value).dtype) && imported.graph.type(o->value).elements() == 1;
  };
  loss->weighted = sum != nullptr && weight != nullptr;
  if (loss->weighted) {
    if (!is_scalar(sum) || !is_scalar(weight)) return Invalid(expected, "; loss_sum and weight are scalars");
    if (FollowsFromPrediction(imported.graph, weight->value, *loss)) {
      return Invalid(
          loss->model->path(),
          ": weight depends on what the model predicts; it must follow from labels, columns and inputs alone");
    }
    return absl::OkStatus();
  }
  if (sum != nullptr || weight != nullptr || imported.outputs.size() != 1) return Invalid(expected);
  const Type& type = imported.graph.type(imported.graph.FindOutput(imported.outputs[0])->value);
  const bool per_sample = IsFloat(type.dtype) && (type.shape == Shape{batch} || type.shape == Shape{batch, 1});
  return per_sample ? absl::OkStatus() : Invalid(expected);
}

// Returns the declared sample type of a label or column, with free extents from the data.
absl::StatusOr<Type> SampleOf(const OnnxModel::Input& input, const LabelInfo& label, DType float_type) {
  Type sample{input.dtype == DType::kFloat32 ? float_type : input.dtype, {}};
  if (input.has_shape && input.dims.empty()) return Invalid("input '", input.name, "' has no batch axis");
  if (!input.has_shape && !label.present) return Invalid("input '", input.name, "' has no shape");
  if (!input.has_shape) return Type{sample.dtype, label.sample.shape};
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const bool same_rank = label.present && label.sample.shape.size() + 1 == input.dims.size();
    sample.shape.push_back(input.dims[i] >= 0 ? input.dims[i] : same_rank ? label.sample.shape[i - 1] : 1);
  }
  if (label.present && sample.elements() != label.sample.elements()) {
    return Invalid("input '", input.name, "' takes ", ToString(sample), " per sample, but the data has ",
                   ToString(label.sample));
  }
  return sample;
}

class Chooser {
 public:
  Chooser(const ImportedModel& model, const LossSpec& spec, const LossTermSpec& term, const LabelInfo& labels,
          std::vector<LossFeed>* feeds)
      : model_(model),
        spec_(spec),
        term_(term),
        labels_(labels),
        feeds_(feeds),
        loss_(std::make_shared<OnnxLoss>(OnnxLoss{.model = spec.onnx.at(term.file)})) {}

  absl::StatusOr<LossTerm> Choose() {
    RETURN_IF_ERROR(FindBatch());
    for (const OnnxModel::Input& input : loss_->model->inputs()) RETURN_IF_ERROR(Annotate(Bind(input), path() + ": "));
    ASSIGN_OR_RETURN(const ImportedModel imported, ImportLoss(*loss_, batch_));
    RETURN_IF_ERROR(CheckOutputs(imported, batch_, loss_.get()));
    const auto predicts = [](const OnnxLossInput& input) { return input.prediction; };
    const auto first = std::find_if(loss_->inputs.begin(), loss_->inputs.end(), predicts);
    if (first == loss_->inputs.end()) {
      return Invalid(path(), ": no input has the name of an output of the model, which has ",
                     absl::StrJoin(model_.outputs, ", "));
    }
    return LossTerm{.function = term_.function,
                    .factor = term_.factor,
                    .output = first->name,
                    .value = first->value,
                    .explanation = StrCat(path(), " on ", absl::StrJoin(bound_, ", ")),
                    .onnx = loss_};
  }

 private:
  const std::string& path() const { return term_.file; }

  // The batch: the leading extent that the model's outputs share with its feeds.
  absl::Status FindBatch() {
    for (const std::string& name : model_.outputs) {
      const Type& type = model_.graph.type(model_.graph.FindOutput(name)->value);
      if (type.rank() > 0) batch_ = type.shape[0];
      if (IsFloat(type.dtype)) loss_->float_type = type.dtype;
      if (type.rank() > 0) return absl::OkStatus();
    }
    return Invalid("the model has no output with a batch axis");
  }

  absl::Status Bind(const OnnxModel::Input& input) {
    OnnxLossInput bound{.name = input.name};
    const bool output = std::find(model_.outputs.begin(), model_.outputs.end(), input.name) != model_.outputs.end();
    const GraphInput* feed = model_.graph.FindInput(input.name);
    if (output) {
      bound.value = model_.graph.FindOutput(input.name)->value;
      bound.prediction = true;
      bound_.push_back(StrCat("output '", input.name, "'"));
    } else if (feed != nullptr && feed->kind == InputKind::kFeed) {
      bound.value = feed->value;
      bound.feed = input.name;
      bound_.push_back(StrCat("input '", input.name, "'"));
    } else {
      return BindLabel(input, std::move(bound));
    }
    bound.type = model_.graph.type(bound.value);
    const DType wanted = input.dtype == DType::kFloat32 ? loss_->float_type : input.dtype;
    const bool fits =
        !input.has_shape || (input.dims.size() == bound.type.shape.size() &&
                             std::equal(input.dims.begin() + std::min<size_t>(1, input.dims.size()), input.dims.end(),
                                        bound.type.shape.begin() + std::min<size_t>(1, bound.type.shape.size()),
                                        [](int64_t d, int64_t extent) { return d < 0 || d == extent; }));
    if (!fits || wanted != bound.type.dtype) {
      return Invalid("input '", input.name, "' ", ToString(input.dtype), "[", absl::StrJoin(input.dims, ","),
                     "] does not fit the model's ", output ? "output " : "input ", ToString(bound.type));
    }
    loss_->inputs.push_back(std::move(bound));
    return absl::OkStatus();
  }

  absl::Status BindLabel(const OnnxModel::Input& input, OnnxLossInput bound) {
    const auto own = spec_.own_labels.find(input.name);
    const bool common = own == spec_.own_labels.end() && MeansLabel(input.name);
    if (!common && own == spec_.own_labels.end() && labels_.present) {
      return Invalid("input '", input.name, "' is neither an output of the model (",
                     absl::StrJoin(model_.outputs, ", "), ") nor one of its inputs, a column of the data or the label");
    }
    LossFeed feed{.label = common ? "" : input.name};
    ASSIGN_OR_RETURN(feed.sample,
                     SampleOf(input, own != spec_.own_labels.end() ? own->second : labels_, loss_->float_type));
    bound.feed = FindOrAddFeed(feed, feeds_);
    bound.type = {feed.sample.dtype, WithBatch(feed.sample.shape, batch_)};
    bound_.push_back(common ? "the label" : StrCat("column '", input.name, "'"));
    loss_->inputs.push_back(std::move(bound));
    return absl::OkStatus();
  }

  const ImportedModel& model_;
  const LossSpec& spec_;
  const LossTermSpec& term_;
  const LabelInfo& labels_;
  std::vector<LossFeed>* feeds_;
  std::shared_ptr<OnnxLoss> loss_;
  int64_t batch_ = 1;
  std::vector<std::string> bound_;  // bindings of the inputs, for messages
};

absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadLoss(const std::string& file, const OnnxModel& model) {
  if (file != kOwnTrainingInfo) return OnnxModel::Load(file);
  ASSIGN_OR_RETURN(const std::optional<TrainingInfo> info, ReadTrainingInfo(model));
  if (!info.has_value()) return Invalid(model.path(), ": has no training_info");
  if (info->loss.empty())
    return Invalid(model.path(), ": training_info: ",
                   info->problem.empty() ? StrCat("its loss is the output '", info->output, "'") : info->problem);
  return OnnxModel::LoadBytes(std::as_bytes(std::span(info->loss)), StrCat(model.path(), " (training_info)"));
}

}  // namespace

absl::Status LoadOnnxLosses(const OnnxModel& model, LossSpec* spec) {
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(spec->name));
  for (const LossTermSpec& term : terms) {
    if (term.file.empty() || spec->onnx.contains(term.file)) continue;
    auto loss = LoadLoss(term.file, model);
    if (!loss.ok()) return Annotate(loss.status(), "`loss`: ");
    spec->onnx[term.file] = *std::move(loss);
  }
  return absl::OkStatus();
}

std::vector<std::string> OnnxLossColumns(const OnnxModel& loss, const OnnxModel& model) {
  std::vector<std::string> columns;
  for (const OnnxModel::Input& input : loss.inputs()) {
    const bool output = std::find(model.outputs().begin(), model.outputs().end(), input.name) != model.outputs().end();
    const bool feed =
        std::any_of(model.inputs().begin(), model.inputs().end(), [&](const auto& i) { return i.name == input.name; });
    if (!output && !feed) columns.push_back(input.name);
  }
  return columns;
}

bool MeansLabel(const std::string& input) {
  static const std::set<std::string> kNames = {"label", "labels", "target", "targets", "y"};
  return kNames.contains(input);
}

absl::StatusOr<LossTerm> ChooseOnnxTerm(const ImportedModel& model, const LossSpec& spec, const LossTermSpec& term,
                                        const LabelInfo& labels, std::vector<LossFeed>* feeds) {
  return Chooser(model, spec, term, labels, feeds).Choose();
}

absl::StatusOr<Val> AppendOnnxLoss(Builder& b, const OnnxLoss& loss, const std::map<std::string, Val>& feeds,
                                   int64_t batch) {
  ASSIGN_OR_RETURN(const ImportedModel imported, ImportLoss(loss, batch));
  std::map<std::string, Val> inputs;
  for (const OnnxLossInput& input : loss.inputs)
    inputs[input.name] = input.value != kNoValue ? b.Wrap(input.value) : feeds.at(input.feed);
  const std::map<ValueId, Val> values = SpliceModel(b, imported, inputs, "loss");
  const std::string& output = loss.weighted ? kLossSum : imported.outputs[0];
  const Val result = values.at(imported.graph.FindOutput(output)->value);
  RETURN_IF_ERROR(b.status());
  return loss.weighted ? Reshape(result, {1}) : result;
}

absl::StatusOr<Val> AppendOnnxLossWeight(Builder& b, const OnnxLoss& loss, int64_t samples) {
  ASSIGN_OR_RETURN(const ImportedModel imported, ImportLoss(loss, samples));
  std::map<std::string, Val> inputs;
  for (const OnnxLossInput& input : loss.inputs) {
    Type type = input.type;
    if (!type.shape.empty()) type.shape[0] = samples;
    const GraphInput* feed = b.graph().FindInput(input.feed);
    inputs[input.name] = input.prediction  ? b.Constant(HostTensor(type))
                         : feed != nullptr ? b.Wrap(feed->value)
                                           : b.Input(InputKind::kFeed, input.feed, type);
  }
  const Val weight = SpliceModel(b, imported, inputs, "loss").at(imported.graph.FindOutput(kWeight)->value);
  RETURN_IF_ERROR(b.status());
  return weight;
}

absl::StatusOr<Graph> BuildOnnxLossWeight(const OnnxLoss& loss, int64_t samples) {
  Graph graph;
  Builder b(&graph);
  ASSIGN_OR_RETURN(const Val weight, AppendOnnxLossWeight(b, loss, samples));
  graph.AddOutput(kWeight, weight.id());
  return graph;
}

namespace {

constexpr std::string_view kRuleWeight = "weight", kRuleGradient = "gradient";
constexpr std::string_view kScalars[] = {"lr", "step", "weight_decay"};

std::string NewName(std::string_view name) { return StrCat(name, "_new"); }

RuleResult AppendOnnxRule(const RuleContext& c) { return c.spec.onnx_rule->Append(c); }

// Casts a value to the type that the model declares for a scalar.
Val ToScalar(Val v, const OnnxModel::Input& input, DType float_type) {
  const DType dtype = IsFloat(input.dtype) ? float_type : input.dtype;
  return Reshape(Cast(v, dtype), Shape(input.dims.size(), 1));
}

}  // namespace

bool OnnxRule::Reads(std::string_view input) const {
  return std::ranges::find(model_->inputs(), input, &OnnxModel::Input::name) != model_->inputs().end();
}

absl::Status OnnxRule::FindStates() {
  for (const std::string_view needed : {kRuleWeight, kRuleGradient}) {
    if (!Reads(needed)) return Invalid("has no input '", needed, "': an update rule reads weight and gradient");
  }
  std::vector<std::string> expected = {NewName(kRuleWeight)};
  for (const OnnxModel::Input& input : model_->inputs()) {
    if (input.name == kRuleWeight) flat_ = input.has_shape && input.dims.size() == 1;
    if (input.name == kRuleWeight || input.name == kRuleGradient ||
        std::ranges::find(kScalars, input.name) != std::end(kScalars))
      continue;
    if (!IsFloat(input.dtype))
      return Invalid("input '", input.name, "' is ", ToString(input.dtype), ": a state is float");
    states_.push_back(input.name);
    expected.push_back(NewName(input.name));
  }
  std::vector<std::string> outputs = model_->outputs();
  std::ranges::sort(outputs);
  std::ranges::sort(expected);
  if (outputs == expected) return absl::OkStatus();
  return Invalid("has the outputs ", absl::StrJoin(outputs, ", "), "; with its inputs a rule has ",
                 absl::StrJoin(expected, ", "));
}

absl::StatusOr<std::shared_ptr<const OnnxRule>> OnnxRule::Make(std::shared_ptr<const OnnxModel> model,
                                                               std::string_view name) {
  std::shared_ptr<OnnxRule> rule(new OnnxRule(std::move(model)));
  const std::string where = rule->model_->path() + ": ";
  RETURN_IF_ERROR(Annotate(rule->FindStates(), where));
  rule->name_ = name;
  rule->rule_ = {.name = rule->name_, .takes = "", .update = AppendOnnxRule, .per_tensor = true};
  for (const std::string& state : rule->states_) rule->rule_.state.push_back({.name = state});
  const auto elementwise = rule->IsElementwise();
  if (!elementwise.ok()) return Annotate(elementwise.status(), where);
  rule->rule_.per_tensor = !*elementwise;
  return rule;
}

// Returns true if each element of the update depends only on the same elements of the inputs, and zero padding stays
// zero.
absl::StatusOr<bool> OnnxRule::IsElementwise() const {
  Graph graph;
  Builder b(&graph);
  const OptimizerSpec spec;
  const auto input = [&](const char* name, Shape shape) {
    return b.Input(InputKind::kFeed, name, {DType::kFloat32, std::move(shape)});
  };
  RuleContext c{.param = input("weight", {7}),
                .grad = input("gradient", {7}),
                .state = {},
                .lr = input("lr", {}),
                .step = input("step", {}),
                .spec = spec};
  for (const std::string& state : states_) c.state.push_back(input(state.c_str(), {7}));
  ASSIGN_OR_RETURN(const RuleResult result, TryAppend(c));
  for (const Node& node : graph.nodes()) {
    const auto is_number = [&](ValueId v) { return v == kNoValue || graph.type(v).elements() == 1; };
    const bool numbers = std::ranges::all_of(node.inputs, is_number) && std::ranges::all_of(node.outputs, is_number);
    if (!IsConstant(node) && !numbers && !FindOp(node.op)->elementwise && !FindOp(node.op)->view && node.op != "Expand")
      return false;
  }
  graph.AddOutput("weight", result.param.id());
  std::map<std::string, HostTensor> zeros;
  for (const GraphInput& value : graph.inputs()) zeros[value.name] = HostTensor(graph.type(value.value));
  zeros["lr"].Set(0, 1);
  const auto moved = Interpret(graph, zeros);
  return moved.ok() && moved->front().SameBytes(HostTensor({DType::kFloat32, {7}}));
}

absl::StatusOr<RuleResult> OnnxRule::TryAppend(const RuleContext& c) const {
  Builder& b = c.param.b();
  const DType dtype = c.param.dtype();
  const Shape shape = flat_ ? Shape{c.param.type().elements()} : c.param.shape();
  const bool decays = Reads("weight_decay");
  std::map<std::string, Val> inputs = {
      {std::string(kRuleWeight), Reshape(c.param, shape)},
      {std::string(kRuleGradient),
       Reshape(c.weight_decay != 0 && !decays ? c.grad + c.param * c.weight_decay : c.grad, shape)}};
  for (size_t i = 0; i < states_.size(); ++i) inputs[states_[i]] = Reshape(c.state[i], shape);
  const std::map<std::string_view, Val> scalars = {
      {"lr", c.lr}, {"step", c.step}, {"weight_decay", b.Scalar(dtype, c.weight_decay)}};
  ImportOptions options{.batch = shape.empty() ? 0 : shape[0], .float_type = dtype};
  for (const OnnxModel::Input& input : model_->inputs()) {
    const auto scalar = scalars.find(input.name);
    if (scalar != scalars.end()) {
      inputs[input.name] = ToScalar(scalar->second, input, dtype);
      options.batch_axes[input.name] = kNoBatchAxis;
    }
    options.input_shapes[input.name] = inputs.at(input.name).shape();
  }
  ASSIGN_OR_RETURN(const ImportedModel imported, Import(*model_, options));
  if (!imported.random_key.empty()) return Invalid("an update rule cannot draw random numbers");
  const std::string source = b.source();
  const std::map<ValueId, Val> values = SpliceModel(b, imported, inputs, source.empty() ? "update" : source);
  b.set_source(source);
  const auto find = [&](std::string_view name) -> absl::StatusOr<Val> {
    const Val v = values.at(imported.graph.FindOutput(NewName(name))->value);
    if (v.valid() && (v.dtype() != dtype || v.shape() != shape))
      return Invalid("output '", NewName(name), "' is ", ToString(v.type()), " for a weight of ",
                     ToString(Type{dtype, shape}));
    return Reshape(v, c.param.shape());
  };
  RuleResult result;
  ASSIGN_OR_RETURN(result.param, find(kRuleWeight));
  for (const std::string& state : states_) {
    ASSIGN_OR_RETURN(result.state.emplace_back(), find(state));
  }
  RETURN_IF_ERROR(b.status());
  return result;
}

RuleResult OnnxRule::Append(const RuleContext& c) const {
  auto result = TryAppend(c);
  if (result.ok()) return *std::move(result);
  c.param.b().Fail(Annotate(result.status(), model_->path() + ": "));
  return {.param = c.param, .state = c.state};
}

}  // namespace onnxtrain
