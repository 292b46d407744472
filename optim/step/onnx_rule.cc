#include "optim/step/onnx_rule.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/ops/interpret.h"
#include "frontend/ops/row.h"
#include "optim/step/splice.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kWeight = "weight", kGradient = "gradient";
constexpr std::string_view kScalars[] = {"lr", "step", "weight_decay"};

std::string NewName(std::string_view name) { return StrCat(name, "_new"); }

RuleResult AppendOnnxRule(const RuleContext& c) { return c.spec.onnx_rule->Append(c); }

// The value in the type that the model declares for a scalar.
Val ToScalar(Val v, const OnnxModel::Input& input, DType float_type) {
  const DType dtype = IsFloat(input.dtype) ? float_type : input.dtype;
  return Reshape(Cast(v, dtype), Shape(input.dims.size(), 1));
}

}  // namespace

bool OnnxRule::Reads(std::string_view input) const {
  return std::ranges::find(model_->inputs(), input, &OnnxModel::Input::name) != model_->inputs().end();
}

absl::Status OnnxRule::FindStates() {
  for (const std::string_view needed : {kWeight, kGradient}) {
    if (!Reads(needed)) return Invalid("has no input '", needed, "': an update rule reads weight and gradient");
  }
  std::vector<std::string> expected = {NewName(kWeight)};
  for (const OnnxModel::Input& input : model_->inputs()) {
    if (input.name == kWeight) flat_ = input.has_shape && input.dims.size() == 1;
    if (input.name == kWeight || input.name == kGradient ||
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

// Whether single elements follow from single elements alone, and padding of zeros stays zeros.
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
    if (node.op != "Constant" && !numbers && !FindOp(node.op)->elementwise && !FindOp(node.op)->view &&
        node.op != "Expand")
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
      {std::string(kWeight), Reshape(c.param, shape)},
      {std::string(kGradient),
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
  ASSIGN_OR_RETURN(result.param, find(kWeight));
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
