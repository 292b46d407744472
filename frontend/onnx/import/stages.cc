#include "frontend/onnx/import/stages.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/import/control_flow.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxNames = 3;  // of nodes per operator

// Advice for users about unsupported operators whose names have the prefix.
struct Advice {
  std::string_view prefix, text;
};
constexpr Advice kAdvice[] = {
    {"com.microsoft.nchwc.",
     "ONNX Runtime wrote the file for one kind of processor: train the model from before, or "
     "have it saved at ORT_ENABLE_EXTENDED"},
    {"ai.onnx.ml.TreeEnsemble", "decision trees have no gradient"},
    {"", "`plugin` loads a library with operators of other domains"},
};

bool IsKnown(const ParsedNode& node) {
  return FindControl(node) != nullptr || IsListOperator(node, {}) || IsGradientNode(node) || IsConstantNode(node) ||
         FindOnnxOp(node.domain, node.op_type) != nullptr;
}

class OperatorChecker {
 public:
  explicit OperatorChecker(const OnnxModel::Parsed& model) : model_(model) {}

  void Visit(const ParsedNode& node) {
    if (IsKnown(node)) return;
    const auto function = model_.functions.find({node.domain, node.op_type});
    if (function == model_.functions.end()) {
      const std::string op = StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type);
      unsupported_[Printable(op)].push_back(Printable(node.source));
    } else if (visited_.insert(function->first).second) {
      for (const ParsedNode& inner : function->second.graph.nodes) Visit(inner);
    }
  }

  absl::Status Summary() const {
    if (unsupported_.empty()) return absl::OkStatus();
    std::vector<std::string> parts;
    std::vector<NodeFailure> failures;
    for (const auto& [op, nodes] : unsupported_) {
      const size_t count = std::min(nodes.size(), kMaxNames);
      const std::vector<std::string> shown(nodes.begin(), nodes.begin() + static_cast<int64_t>(count));
      parts.push_back(
          StrCat(op, " (", nodes.size(), ": '", absl::StrJoin(shown, "', '"), nodes.size() > count ? "', …)" : "')"));
      failures.push_back(
          {.message = StrCat(op, " is not supported: '", absl::StrJoin(nodes, "', '"), "'"), .unsupported_op = op});
    }
    return WithImportFailures(
        absl::UnimplementedError(StrCat("unsupported operators: ", absl::StrJoin(parts, ", "), FindAdvice())),
        failures);
  }

 private:
  // Returns the advice for the first unsupported operator that has a domain, "" if there is none.
  std::string FindAdvice() const {
    const auto foreign =
        std::ranges::find_if(unsupported_, [](const auto& op) { return op.first.find('.') != op.first.npos; });
    if (foreign == unsupported_.end()) return "";
    const auto is_prefix = [&](const Advice& advice) { return foreign->first.starts_with(advice.prefix); };
    return StrCat("; ", std::ranges::find_if(kAdvice, is_prefix)->text);
  }

  const OnnxModel::Parsed& model_;
  std::map<std::string, std::vector<std::string>> unsupported_;  // node names by operator
  std::set<std::pair<std::string, std::string>> visited_;        // functions
};

}  // namespace

absl::Status CheckOperators(const OnnxModel::Parsed& model, const LiveGraph& live) {
  OperatorChecker checker(model);
  for (const ParsedNode& node : model.graph.nodes) {
    if (live.Contains(node)) checker.Visit(node);
  }
  return checker.Summary();
}

namespace {

// Moves axis 0 of a feed to the batch axis of the file.
Val MoveBatchTo(Val feed, int axis) {
  if (axis == kAddedBatchAxis) return Reshape(feed, Shape(feed.shape().begin() + 1, feed.shape().end()));
  if (axis <= 0) return feed;
  std::vector<int64_t> perm(feed.rank());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + 1, perm.begin() + axis + 1);
  return Transpose(feed, std::move(perm));
}

class FeedCreator {
 public:
  FeedCreator(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes, const FloatTypes& types,
              Builder* builder)
      : options_(options), live_(live), shapes_(shapes), types_(types), builder_(*builder) {}

  absl::StatusOr<ImportValue> Create(const ParsedValue& input) const {
    if (!input.form.is_tensor() && input.element) return CreateList(input);
    if (const HostTensor* fixed = FindFixed(input.name))
      return ImportValue(builder_.Constant(types_.Map(FitToBatch(*fixed, shapes_.BatchAxis(input)))));
    if (!input.dtype) return absl::UnimplementedError(StrCat("is a ", input.kind, ", which is not supported"));
    ASSIGN_OR_RETURN(const Shape shape, shapes_.Resolve(input));
    RETURN_IF_ERROR(CheckShape(shape));
    // Feeds keep the types of the file, so that data is rounded as in the trained model.
    const bool chosen = *input.dtype == DType::kFloat32;
    const Val feed =
        builder_.Input(InputKind::kFeed, input.name, {chosen ? types_.Map(*input.dtype) : *input.dtype, shape});
    return ImportValue(MoveBatchTo(Cast(feed, types_.Map(*input.dtype)), shapes_.BatchAxis(input)));
  }

 private:
  const HostTensor* FindFixed(const std::string& name) const {
    const auto it = options_.fixed_inputs.find(name);
    return it == options_.fixed_inputs.end() ? nullptr : &it->second;
  }

  // Sets the batch axis of an empty tensor to the batch, unless it would still be empty.
  HostTensor FitToBatch(const HostTensor& fixed, int axis) const {
    if (fixed.size() > 0 || axis < 0 || axis >= fixed.type().rank()) return fixed;
    Shape shape = fixed.shape();
    shape[axis] = shapes_.batch();
    return NumElements(shape) > 0 ? fixed : HostTensor({fixed.dtype(), shape});
  }

  absl::StatusOr<ImportValue> CreateList(const ParsedValue& input) const {
    const auto given = options_.list_inputs.find(input.name);
    if (given == options_.list_inputs.end())
      return absl::UnimplementedError(StrCat("is a ", input.kind, ": its number of elements is not given"));
    const auto& [present, elements] = given->second;
    if (!input.form.sequence && elements.size() != (present ? 1 : 0))
      return Invalid("is an optional of ", elements.size(), " tensors");
    ListValue list{.form = input.form, .present = present};
    for (size_t i = 0; i < elements.size(); ++i) {
      RETURN_IF_ERROR(Annotate(CheckShape(elements[i]), StrCat("element ", i, " ")));
      ASSIGN_OR_RETURN(const Val element, CreateElement(ElementName(input.name, i), {*input.element, elements[i]}));
      list.elements.push_back(element);
    }
    return ImportValue(std::move(list));
  }

  absl::StatusOr<Val> CreateElement(const std::string& name, const Type& type) const {
    if (const HostTensor* fixed = FindFixed(name)) return builder_.Constant(types_.Map(*fixed));
    if (live_.IsRead(name) || builder_.graph().FindInput(name) != nullptr)
      return Invalid("has an element '", Printable(name), "', which another value is named");
    return builder_.Input(InputKind::kFeed, name, {types_.Map(type.dtype), type.shape});
  }

  const ImportOptions& options_;
  const LiveGraph& live_;
  const InputShapes& shapes_;
  const FloatTypes& types_;
  Builder& builder_;
};

absl::Status CheckGivenNames(const ImportOptions& options, const ParsedGraph& graph) {
  std::unordered_set<std::string_view> inputs;
  for (const ParsedValue& input : graph.inputs) inputs.insert(input.name);
  for (const auto& [name, shape] : options.input_shapes) {
    if (!inputs.contains(name)) return Invalid("has no input '", Printable(name), "'");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CreateFeeds(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes,
                         const FloatTypes& types, Builder* builder, ImportScope* top, std::vector<std::string>* notes) {
  const ParsedGraph& graph = *top->graph;
  RETURN_IF_ERROR(CheckGivenNames(options, graph));
  const FeedCreator creator(options, live, shapes, types, builder);
  for (const ParsedValue& input : graph.inputs) {
    if (graph.initializers.count(input.name) > 0 || graph.opaque.count(input.name) > 0) continue;
    const std::string tag = StrCat("input '", Printable(input.name), "' ");
    if (!live.IsRead(input.name)) {
      notes->push_back(StrCat(tag, "is not used"));
      continue;
    }
    auto value = creator.Create(input);
    if (!value.ok()) return Annotate(value.status(), tag);
    top->values[input.name] = *std::move(value);
    const int axis = shapes.BatchAxis(input);
    if (axis > 0) notes->push_back(StrCat(tag, "has its batch on axis ", axis, ": samples come without it"));
    if (axis == kAddedBatchAxis)
      notes->push_back(StrCat(tag, "has no batch axis: the model takes one sample at a time"));
  }
  if (shapes.fixed_batch() > 0) {
    notes->push_back(StrCat("exported for a batch of ", shapes.fixed_batch(), ": its constants follow the batch of ",
                            shapes.batch(), " now"));
  }
  return absl::OkStatus();
}

namespace {

absl::Status AddOutput(Graph* graph, const std::string& name, Val v, std::vector<std::string>* names) {
  if (graph->FindOutput(name) != nullptr) return Invalid("two outputs are named '", Printable(name), "'");
  graph->AddOutput(name, v.id());
  names->push_back(name);
  return absl::OkStatus();
}

// Moves the batch axis of an output to the front.
Val MoveBatchFirst(Val output, int axis) {
  if (axis == kAddedBatchAxis) {
    Shape shape = output.shape();
    shape.insert(shape.begin(), 1);
    return Reshape(output, std::move(shape));
  }
  if (axis <= 0 || axis >= output.rank()) return output;
  std::vector<int64_t> perm(output.rank());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + axis, perm.begin() + axis + 1);
  return Transpose(output, std::move(perm));
}

absl::Status AddOutputs(Graph* graph, const std::string& name, const ImportValue& value,
                        std::vector<std::string>* names) {
  if (value.list == nullptr) return AddOutput(graph, name, value.tensor, names);
  for (size_t i = 0; i < value.list->elements.size(); ++i) {
    RETURN_IF_ERROR(AddOutput(graph, ElementName(name, i), value.list->elements[i], names));
  }
  return absl::OkStatus();
}

// Registers the logits of a Softmax whose output is transposed.
void ExposeMovedLogits(ImportState& state, Val output, Val moved, int axis) {
  const Node* node = state.graph.producer(output.id());
  if (node == nullptr || node->op != "Softmax") return;
  state.effects.logits[moved.id()] = MoveBatchFirst(state.builder.Wrap(node->inputs[0]), axis).id();
}

std::string UnusedOutputName(const Graph& graph, std::string name) {
  while (graph.FindOutput(name) != nullptr) name += "_";
  return name;
}

}  // namespace

std::vector<std::string> ChooseOutputs(const OnnxModel::Parsed& model, const ImportOptions& options,
                                       std::vector<std::string>* notes) {
  if (!options.outputs.empty()) return options.outputs;
  std::vector<std::string> outputs = model.outputs;
  for (const ParsedValue& output : model.graph.outputs) {
    if (outputs.size() < 2 || output.kind != "tensor of string") continue;
    outputs.erase(std::ranges::find(outputs, output.name));
    notes->push_back(StrCat("output '", Printable(output.name), "' holds strings and is left out"));
  }
  return outputs;
}

absl::StatusOr<std::vector<std::string>> BindOutputs(ImportState& state, const std::vector<std::string>& outputs,
                                                     int64_t batch) {
  static const ParsedNode kReader{.op_type = "the model", .source = "outputs"};
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& name : outputs) {
    if (!seen.insert(name).second) return Invalid("output '", Printable(name), "' is asked for twice");
    const std::optional<ImportValue> v = state.symbols.Find(state.top, name, kReader);
    RETURN_IF_ERROR(state.errors.Summary());
    if (!v || !v->valid()) return Invalid("there is no value '", Printable(name), "' to make an output of");
    const auto axis = state.options.batch_axes.find(name);
    const bool moved = v->list == nullptr && axis != state.options.batch_axes.end();
    if (moved && axis->second == kAddedBatchAxis && batch != 1)
      return Invalid("output '", Printable(name), "' has no batch axis: the model takes one sample at a time");
    ImportValue batch_first = moved ? ImportValue(MoveBatchFirst(v->tensor, axis->second)) : *v;
    if (name == state.options.negated && v->list == nullptr) batch_first = ImportValue(-batch_first.tensor);
    if (moved && axis->second > 0) ExposeMovedLogits(state, v->tensor, batch_first.tensor, axis->second);
    RETURN_IF_ERROR(AddOutputs(&state.graph, name, batch_first, &names));
  }
  return names;
}

std::map<std::string, Logits> ExposeLogits(ImportState& state, const std::vector<std::string>& outputs,
                                           std::vector<std::string>* notes) {
  std::map<std::string, Logits> exposed;
  for (const std::string& name : outputs) {
    const GraphOutput* scores = state.graph.FindOutput(name);
    if (scores == nullptr) continue;  // a list
    const auto it = state.effects.logits.find(scores->value);
    if (it == state.effects.logits.end() || it->second == it->first) continue;
    exposed[name] = {.output = UnusedOutputName(state.graph, StrCat(name, ".logits"))};
    state.graph.AddOutput(exposed[name].output, it->second);
    notes->push_back(StrCat("output '", Printable(name),
                            "' is a classifier's: trained on its scores before they become probabilities"));
  }
  return exposed;
}

std::vector<StateUpdate> BindStateUpdates(ImportState& state) {
  std::vector<StateUpdate> updates;
  for (const UpdatedState& update : state.effects.updates) {
    const std::string& name = state.weights.Find(update.state)->name;
    const std::string output = UnusedOutputName(state.graph, StrCat(name, ".next"));
    state.graph.AddOutput(output, update.next, update.state);
    updates.push_back({.state = name, .output = output, .momentum = update.momentum});
  }
  return updates;
}

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
