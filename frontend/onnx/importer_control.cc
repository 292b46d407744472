// If, Loop, Scan and SequenceMap. Their bodies are imported in scopes of their own: a branch that is known to be taken once,
// a loop's body as often as it runs. Bodies read the weights of the enclosing graphs, so what is unrolled shares them.
#include <algorithm>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/onnx/importer.h"

namespace onnxtrain {
namespace {

using Values = std::vector<ImportValue>;

// x without an axis of extent 1, and the other way round.
Val DropAxis(Val x, int64_t axis) {
  if (!x.valid()) return x;
  Shape shape = x.shape();
  shape.erase(shape.begin() + axis);
  return Reshape(x, std::move(shape));
}

Val InsertAxis(Val x, int64_t axis) {
  if (!x.valid()) return x;
  Shape shape = x.shape();
  shape.insert(shape.begin() + axis, 1);
  return Reshape(x, std::move(shape));
}

Val ElementAt(Val x, int64_t axis, int64_t i) { return DropAxis(Slice(x, axis, i, 1), axis); }

// Of what a body gave in each iteration, or of what a body declares where there was none.
absl::StatusOr<Val> Stacked(Builder& b, const std::vector<Val>& parts, int64_t axis, const ParsedValue& declared) {
  if (parts.empty()) {
    const bool fixed = declared.dtype && declared.has_shape &&
                       std::all_of(declared.dims.begin(), declared.dims.end(), [](int64_t d) { return d >= 0; });
    if (!fixed) return absl::UnimplementedError(StrCat("runs not once, and nothing says what '", Printable(declared.name), "' would be"));
    Shape shape = declared.dims;
    shape.insert(shape.begin() + std::clamp<int64_t>(axis, 0, static_cast<int64_t>(shape.size())), 0);
    return b.Constant(HostTensor({*declared.dtype, shape}));
  }
  ASSIGN_OR_RETURN(const int64_t at, NormalizeAxis(axis, parts[0].rank() + 1));
  std::vector<Val> wide;
  for (Val part : parts) {
    if (!(part.type() == parts[0].type())) {
      return Invalid("'", Printable(declared.name), "' is ", ToString(parts[0].type()), " and then ", ToString(part.type()));
    }
    wide.push_back(InsertAxis(part, at));
  }
  return Concat(std::move(wide), at);
}

absl::StatusOr<Val> TensorOf(const ImportValue& value, std::string_view what) {
  if (!value.tensor.valid()) return Invalid(what, value.list != nullptr ? " is a sequence or optional, not a tensor" : " is missing");
  return value.tensor;
}

// Choices by a condition that is known only at run time.
absl::StatusOr<Val> Select(Val condition, Val a, Val b, std::string_view name) {
  if (a.valid() && b.valid() && a.id() == b.id()) return a;
  if (!a.valid() || !b.valid() || !(a.type() == b.type())) {
    return absl::UnimplementedError(StrCat("its condition is known only at run time, and '", Printable(name), "' is ",
                                           a.valid() ? ToString(a.type()) : "nothing", " in one branch and ",
                                           b.valid() ? ToString(b.type()) : "nothing", " in the other"));
  }
  return Where(condition, a, b);
}

absl::StatusOr<ImportValue> SelectAny(Val condition, const ImportValue& a, const ImportValue& b, std::string_view name) {
  if (a.list == nullptr && b.list == nullptr) {
    ASSIGN_OR_RETURN(const Val v, Select(condition, a.tensor, b.tensor, name));
    return ImportValue(v);
  }
  const bool alike = a.list != nullptr && b.list != nullptr && a.list->present == b.list->present &&
                     a.list->elements.size() == b.list->elements.size();
  if (!alike) {
    return absl::UnimplementedError(StrCat("its condition is known only at run time, and the sequence or optional '",
                                           Printable(name), "' differs between the branches in more than its elements' values"));
  }
  ListValue list = *a.list;
  for (size_t i = 0; i < list.elements.size(); ++i) {
    ASSIGN_OR_RETURN(list.elements[i], Select(condition, a.list->elements[i], b.list->elements[i], name));
  }
  return ImportValue(std::move(list));
}

}  // namespace

absl::Status AlreadyReported() { return absl::CancelledError("a node of its body failed"); }

Importer::ControlFn Importer::FindControl(const ParsedNode& node) {
  static const std::map<std::string_view, ControlFn> kControl = {{"If", &Importer::ImportIf}, {"Loop", &Importer::ImportLoop},
                                                                 {"Scan", &Importer::ImportScan},
                                                                 {"SequenceMap", &Importer::ImportSequenceMap}};
  auto it = node.domain.empty() ? kControl.find(node.op_type) : kControl.end();
  return it == kControl.end() ? nullptr : it->second;
}

absl::StatusOr<const ParsedGraph*> Importer::BodyOf(const ParsedNode& node, std::string_view attribute) const {
  auto it = node.graphs.find(std::string(attribute));
  if (it == node.graphs.end()) return Invalid("has no graph '", attribute, "'");
  return it->second.get();
}

Importer::ResultsOr Importer::ImportBody(ImportScope& scope, const ParsedNode& node, std::string_view attribute,
                                         std::string_view label, Values inputs) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, BodyOf(node, attribute));
  if (inputs.size() != body->inputs.size()) {
    return Invalid("its ", attribute, " has ", body->inputs.size(), " inputs, expected ", inputs.size());
  }
  RETURN_IF_ERROR(CountExpanded());
  const std::string source = builder_.source();
  ImportScope inner{.graph = body, .parent = &scope, .opsets = scope.opsets, .call = scope.call,
                    .prefix = StrCat(scope.prefix, node.source, "/", label, label.empty() ? "" : "/")};
  for (size_t i = 0; i < inputs.size(); ++i) inner.values[body->inputs[i].name] = std::move(inputs[i]);
  const size_t errors = errors_.size();
  RETURN_IF_ERROR(ImportNodes(inner));
  Values results;
  for (const ParsedValue& output : body->outputs) {
    results.push_back(LookupAny(inner, output.name, node).value_or(ImportValue()));
  }
  builder_.set_source(source);
  if (errors_.size() > errors) return AlreadyReported();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].valid()) return Invalid("its ", attribute, " gives nothing for '", Printable(body->outputs[i].name), "'");
  }
  return results;
}

bool Importer::IsRead(const ImportScope& scope, const std::string& output) const {
  return !output.empty() && (scope.graph != &model_.graph || needed_names_.count(output) > 0);
}

absl::StatusOr<int64_t> Importer::KnownNumber(const ImportValue& value, std::string_view what) {
  ASSIGN_OR_RETURN(const Val v, TensorOf(value, what));
  const HostTensor* known = KnownValue(v.id());
  if (known == nullptr) return absl::UnimplementedError(StrCat(what, " is known only at run time, which is not supported"));
  if (known->size() != 1) return Invalid(what, " has ", known->size(), " elements");
  return known->IntAt(0);
}

// --- If ----------------------------------------------------------------------------------------------------------------

Importer::ResultsOr Importer::ImportIf(ImportScope& scope, const ParsedNode& node, Values inputs) {
  if (inputs.size() != 1) return Invalid("expected 1 input, got ", inputs.size());
  ASSIGN_OR_RETURN(const Val condition, TensorOf(inputs[0], "its condition"));
  for (std::string_view branch : {"then_branch", "else_branch"}) {
    ASSIGN_OR_RETURN(const ParsedGraph* graph, BodyOf(node, branch));
    if (graph->outputs.size() == node.outputs.size()) continue;
    return Invalid("lists ", node.outputs.size(), " outputs, its ", branch, " gives ", graph->outputs.size());
  }
  if (KnownValue(condition.id()) == nullptr) return ImportBothBranches(scope, node, condition);
  ASSIGN_OR_RETURN(const int64_t taken, KnownNumber(inputs[0], "its condition"));
  return ImportBody(scope, node, taken != 0 ? "then_branch" : "else_branch", "", {});
}

// Both are computed; Where lets gradients through the one that is chosen, whatever the other one holds.
Importer::ResultsOr Importer::ImportBothBranches(ImportScope& scope, const ParsedNode& node, Val condition) {
  if (condition.dtype() != DType::kBool || condition.type().elements() != 1) {
    return Invalid("its condition should be one bool, got ", ToString(condition.type()));
  }
  ++conditional_;
  auto yes = ImportBody(scope, node, "then_branch", "then", {});
  auto no = ImportBody(scope, node, "else_branch", "else", {});
  --conditional_;
  if (!yes.ok() || !no.ok()) {
    const absl::Status& status = yes.ok() ? no.status() : yes.status();
    if (status != AlreadyReported()) return status;
    return absl::UnimplementedError("its condition is known only at run time, and one of its branches cannot be imported");
  }
  const Val scalar = Reshape(condition, {});
  Values results;
  for (size_t i = 0; i < yes->size(); ++i) {
    ASSIGN_OR_RETURN(ImportValue chosen, SelectAny(scalar, (*yes)[i], (*no)[i], node.outputs[i]));
    results.push_back(std::move(chosen));
  }
  return results;
}

// --- Loop --------------------------------------------------------------------------------------------------------------

Importer::ResultsOr Importer::ImportLoop(ImportScope& scope, const ParsedNode& node, Values inputs) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, BodyOf(node, "body"));
  inputs.resize(std::max<size_t>(inputs.size(), 2));
  const size_t carried = inputs.size() - 2;
  if (body->outputs.size() < 1 + carried) return Invalid("carries ", carried, " values, its body gives ", body->outputs.size(), " outputs");
  const size_t stacked = body->outputs.size() - 1 - carried;
  if (node.outputs.size() > carried + stacked) return Invalid("lists ", node.outputs.size(), " outputs, its body gives ", carried + stacked);
  const bool counted = inputs[0].valid(), conditioned = inputs[1].valid();
  if (!counted && !conditioned) return Invalid("has neither a trip count nor a condition: it would never end");
  int64_t count = std::numeric_limits<int64_t>::max(), go = 1;
  if (counted) {
    ASSIGN_OR_RETURN(count, KnownNumber(inputs[0], "its trip count"));
  }
  if (conditioned) {
    ASSIGN_OR_RETURN(go, KnownNumber(inputs[1], "its condition"));
  }
  Values state(inputs.begin() + 2, inputs.end());
  std::vector<std::vector<Val>> parts(stacked);
  for (int64_t i = 0; i < count && go != 0; ++i) {
    Values arguments = {builder_.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&i, 1})),
                        builder_.Constant(HostTensor::Scalar(DType::kBool, 1))};
    arguments.insert(arguments.end(), state.begin(), state.end());
    ASSIGN_OR_RETURN(const Values results, ImportBody(scope, node, "body", StrCat(i), std::move(arguments)));
    if (conditioned) {
      ASSIGN_OR_RETURN(go, KnownNumber(results[0], StrCat("its condition after iteration ", i)));
    }
    state.assign(results.begin() + 1, results.begin() + 1 + static_cast<int64_t>(carried));
    for (size_t k = 0; k < stacked; ++k) {
      ASSIGN_OR_RETURN(parts[k].emplace_back(), TensorOf(results[1 + carried + k], "a scan output"));
    }
  }
  for (size_t k = 0; k < stacked && carried + k < node.outputs.size(); ++k) {
    state.emplace_back();
    if (!IsRead(scope, node.outputs[carried + k])) continue;
    ASSIGN_OR_RETURN(state.back(), Stacked(builder_, parts[k], 0, body->outputs[1 + carried + k]));
  }
  return state;
}

// --- Scan --------------------------------------------------------------------------------------------------------------

namespace {

struct ScanPlan {
  size_t states = 0, scanned = 0, stacked = 0;
  std::vector<int64_t> in_axes, in_directions, out_axes, out_directions;
};

absl::StatusOr<std::vector<int64_t>> PerOperand(const Attrs& attrs, std::string_view name, size_t count) {
  std::vector<int64_t> list = attrs.Ints(name, std::vector<int64_t>(count, 0));
  if (list.size() != count) return Invalid(name, " has ", list.size(), " entries, expected ", count);
  return list;
}

absl::StatusOr<ScanPlan> PlanScan(const Attrs& attrs, const ParsedGraph& body, size_t inputs, size_t outputs, bool version8) {
  ScanPlan plan;
  const int64_t scanned = attrs.Int("num_scan_inputs");
  if (scanned < 1 || static_cast<size_t>(scanned) > inputs) return Invalid("num_scan_inputs is ", scanned, " for ", inputs, " inputs");
  plan.scanned = static_cast<size_t>(scanned);
  plan.states = inputs - plan.scanned;
  if (body.outputs.size() < plan.states) return Invalid("has ", plan.states, " states, its body gives ", body.outputs.size(), " outputs");
  plan.stacked = body.outputs.size() - plan.states;
  if (outputs > body.outputs.size()) return Invalid("lists ", outputs, " outputs, its body gives ", body.outputs.size());
  ASSIGN_OR_RETURN(plan.in_directions, PerOperand(attrs, version8 ? "directions" : "scan_input_directions", plan.scanned));
  ASSIGN_OR_RETURN(plan.in_axes, PerOperand(version8 ? Attrs() : attrs, "scan_input_axes", plan.scanned));
  ASSIGN_OR_RETURN(plan.out_axes, PerOperand(version8 ? Attrs() : attrs, "scan_output_axes", plan.stacked));
  ASSIGN_OR_RETURN(plan.out_directions, PerOperand(version8 ? Attrs() : attrs, "scan_output_directions", plan.stacked));
  return plan;
}

// The extent that all scanned inputs share. Axes come out normalized.
absl::StatusOr<int64_t> ScanLength(const Values& inputs, ScanPlan* plan) {
  int64_t length = -1;
  for (size_t k = 0; k < plan->scanned; ++k) {
    ASSIGN_OR_RETURN(const Val x, TensorOf(inputs[plan->states + k], "a scan input"));
    ASSIGN_OR_RETURN(plan->in_axes[k], NormalizeAxis(plan->in_axes[k], x.rank()));
    const int64_t extent = x.dim(static_cast<int>(plan->in_axes[k]));
    if (length >= 0 && extent != length) return Invalid("scans ", length, " elements of one input and ", extent, " of another");
    length = extent;
  }
  return length;
}

}  // namespace

Importer::ResultsOr Importer::RunScan(ImportScope& scope, const ParsedNode& node, std::string_view label, const Values& inputs,
                                      bool version8) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, BodyOf(node, "body"));
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  ASSIGN_OR_RETURN(ScanPlan plan, PlanScan(attrs, *body, inputs.size(), node.outputs.size(), version8));
  ASSIGN_OR_RETURN(const int64_t length, ScanLength(inputs, &plan));
  Values state(inputs.begin(), inputs.begin() + static_cast<int64_t>(plan.states));
  std::vector<std::vector<Val>> parts(plan.stacked);
  for (int64_t i = 0; i < length; ++i) {
    Values arguments = state;
    for (size_t k = 0; k < plan.scanned; ++k) {
      const int64_t at = plan.in_directions[k] != 0 ? length - 1 - i : i;
      arguments.push_back(ElementAt(inputs[plan.states + k].tensor, plan.in_axes[k], at));
    }
    ASSIGN_OR_RETURN(const Values results, ImportBody(scope, node, "body", StrCat(label, i), std::move(arguments)));
    state.assign(results.begin(), results.begin() + static_cast<int64_t>(plan.states));
    for (size_t k = 0; k < plan.stacked; ++k) {
      ASSIGN_OR_RETURN(parts[k].emplace_back(), TensorOf(results[plan.states + k], "a scan output"));
    }
  }
  for (size_t k = 0; k < plan.stacked; ++k) {
    if (plan.out_directions[k] != 0) std::reverse(parts[k].begin(), parts[k].end());
    ASSIGN_OR_RETURN(const Val v, Stacked(builder_, parts[k], plan.out_axes[k], body->outputs[plan.states + k]));
    state.push_back(v);
  }
  return state;
}

Importer::ResultsOr Importer::ImportScan(ImportScope& scope, const ParsedNode& node, Values inputs) {
  auto opset = scope.opsets->find("");
  if (opset != scope.opsets->end() && opset->second < 9) return ImportScan8(scope, node, std::move(inputs));
  return RunScan(scope, node, "", inputs, false);
}

// The first version scanned each sample of a batch by itself: axis 0 of everything is the batch, axis 1 the sequence.
Importer::ResultsOr Importer::ImportScan8(ImportScope& scope, const ParsedNode& node, Values inputs) {
  if (inputs.empty()) return Invalid("has no inputs");
  if (inputs[0].valid()) return absl::UnimplementedError("sequence_lens is not supported");
  inputs.erase(inputs.begin());
  std::vector<std::vector<Val>> parts;
  int64_t batch = -1;
  for (const ImportValue& input : inputs) {
    ASSIGN_OR_RETURN(const Val x, TensorOf(input, "an input"));
    if (x.rank() < 1 || (batch >= 0 && x.dim(0) != batch)) return Invalid("expected inputs with one batch in front, got ", ToString(x.type()));
    batch = x.dim(0);
  }
  for (int64_t sample = 0; sample < batch; ++sample) {
    Values of_sample;
    for (const ImportValue& input : inputs) of_sample.push_back(ElementAt(input.tensor, 0, sample));
    ASSIGN_OR_RETURN(const Values results, RunScan(scope, node, StrCat(sample, "/"), of_sample, true));
    parts.resize(results.size());
    for (size_t k = 0; k < results.size(); ++k) {
      ASSIGN_OR_RETURN(parts[k].emplace_back(), TensorOf(results[k], "an output"));
    }
  }
  Values stacked;
  for (const auto& part : parts) {
    ASSIGN_OR_RETURN(const Val v, Stacked(builder_, part, 0, {}));
    stacked.push_back(v);
  }
  return stacked;
}

// --- SequenceMap -------------------------------------------------------------------------------------------------------

// The body runs for each element of the first input; other sequences go along with it, tensors are seen whole.
Importer::ResultsOr Importer::ImportSequenceMap(ImportScope& scope, const ParsedNode& node, Values inputs) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, BodyOf(node, "body"));
  auto is_sequence = [](const ImportValue& v) { return v.list != nullptr && v.list->present && v.list->form.sequence; };
  if (inputs.empty() || !is_sequence(inputs[0])) return Invalid("its first input should be a sequence");
  const size_t length = inputs[0].list->elements.size();
  std::vector<ListValue> mapped(body->outputs.size(), ListValue{.form = {.sequence = true}});
  for (size_t i = 0; i < length; ++i) {
    Values arguments;
    for (const ImportValue& input : inputs) {
      if (is_sequence(input) && input.list->elements.size() != length) {
        return Invalid("maps sequences of ", length, " and of ", input.list->elements.size(), " elements together");
      }
      arguments.push_back(is_sequence(input) ? ImportValue(input.list->elements[i]) : input);
    }
    ASSIGN_OR_RETURN(const Values results, ImportBody(scope, node, "body", StrCat(i), std::move(arguments)));
    for (size_t k = 0; k < results.size(); ++k) {
      ASSIGN_OR_RETURN(mapped[k].elements.emplace_back(), TensorOf(results[k], "an output of its body"));
    }
  }
  return Values(mapped.begin(), mapped.end());
}

}  // namespace onnxtrain
