#include "frontend/onnx/import/control_flow.h"

#include <algorithm>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/onnx/import/scope.h"

namespace onnxtrain {
namespace {

Val InsertAxis(Val x, int64_t axis) {
  if (!x.valid()) return x;
  Shape shape = x.shape();
  shape.insert(shape.begin() + axis, 1);
  return Reshape(x, std::move(shape));
}

absl::StatusOr<Val> StackNothing(Builder& b, int64_t axis, const ParsedValue& declared) {
  const bool fixed =
      declared.dtype && declared.has_shape && std::ranges::all_of(declared.dims, [](int64_t d) { return d >= 0; });
  if (!fixed)
    return absl::UnimplementedError(
        StrCat("has no iterations, and its body does not declare the shape of '", Printable(declared.name), "'"));
  Shape shape = declared.dims;
  shape.insert(shape.begin() + std::clamp<int64_t>(axis, 0, static_cast<int64_t>(shape.size())), 0);
  return b.Constant(HostTensor({*declared.dtype, shape}));
}

bool IsSequence(const ImportValue& v) { return v.list != nullptr && v.list->present && v.list->form.sequence; }

// Returns the inputs of the body in iteration i: element i of each sequence, and whole tensors.
absl::StatusOr<ImportValues> ElementsAt(const ImportValues& inputs, size_t length, size_t i) {
  ImportValues arguments;
  for (const ImportValue& input : inputs) {
    if (IsSequence(input) && input.list->elements.size() != length)
      return Invalid("maps sequences of ", length, " and of ", input.list->elements.size(), " elements together");
    arguments.push_back(IsSequence(input) ? ImportValue(input.list->elements[i]) : input);
  }
  return arguments;
}

}  // namespace

ControlFn FindControl(const ParsedNode& node) {
  static const std::map<std::string_view, ControlFn> control = {
      {"If", ImportIf}, {"Loop", ImportLoop}, {"Scan", ImportScan}, {"SequenceMap", ImportSequenceMap}};
  const auto it = node.domain.empty() ? control.find(node.op_type) : control.end();
  return it == control.end() ? nullptr : it->second;
}

absl::StatusOr<const ParsedGraph*> FindBody(const ParsedNode& node, std::string_view attribute) {
  const auto it = node.graphs.find(std::string(attribute));
  if (it == node.graphs.end()) return Invalid("has no graph '", attribute, "'");
  return it->second.get();
}

Val ElementAt(Val x, int64_t axis, int64_t i) {
  const Val slice = Slice(x, axis, i, 1);
  if (!slice.valid()) return slice;
  Shape shape = slice.shape();
  shape.erase(shape.begin() + axis);
  return Reshape(slice, std::move(shape));
}

absl::StatusOr<Val> StackIterations(Builder& b, const std::vector<Val>& parts, int64_t axis,
                                    const ParsedValue* declared) {
  if (parts.empty()) return StackNothing(b, axis, *declared);
  ASSIGN_OR_RETURN(const int64_t at, NormalizeAxis(axis, parts[0].rank() + 1));
  std::vector<Val> rows;
  for (Val part : parts) {
    if (!(part.type() == parts[0].type())) {
      return Invalid("'", declared == nullptr ? "" : Printable(declared->name), "' is ", ToString(parts[0].type()),
                     " and then ", ToString(part.type()));
    }
    rows.push_back(InsertAxis(part, at));
  }
  return Concat(std::move(rows), at);
}

// Imports the body once for each element of the first input. Other sequences advance with it; tensors are passed whole.
ImportValuesOr ImportSequenceMap(ControlNode& c) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, FindBody(c.node, "body"));
  if (c.inputs.empty() || !IsSequence(c.inputs[0])) return Invalid("its first input should be a sequence");
  const size_t length = c.inputs[0].list->elements.size();
  std::vector<ListValue> mapped(body->outputs.size(), ListValue{.form = {.sequence = true}});
  for (size_t i = 0; i < length; ++i) {
    ASSIGN_OR_RETURN(ImportValues arguments, ElementsAt(c.inputs, length, i));
    ASSIGN_OR_RETURN(const ImportValues results,
                     c.import_body({.attribute = "body", .label = StrCat(i), .inputs = std::move(arguments)}));
    for (size_t k = 0; k < results.size(); ++k) {
      ASSIGN_OR_RETURN(mapped[k].elements.emplace_back(), RequireTensor(results[k], "an output of its body"));
    }
  }
  return ImportValues(mapped.begin(), mapped.end());
}

namespace {

// Reshapes a value of one element to `other` if that has one element and more axes, because branches of one If may
// return a scalar and a vector.
Val WithAxesOf(Val v, Val other) {
  const bool single = v.valid() && other.valid() && v.type().elements() == 1 && other.type().elements() == 1;
  return single && v.rank() < other.rank() ? Reshape(v, other.shape()) : v;
}

// Selects one of two values by a condition that is known only at run time.
absl::StatusOr<Val> SelectTensor(Val condition, Val a, Val b, std::string_view name) {
  if (a.valid() && b.valid() && a.id() == b.id()) return a;
  a = WithAxesOf(a, b);
  b = WithAxesOf(b, a);
  if (!a.valid() || !b.valid() || !(a.type() == b.type())) {
    return absl::UnimplementedError(StrCat("its condition is known only at run time, and '", Printable(name), "' is ",
                                           a.valid() ? ToString(a.type()) : "nothing", " in one branch and ",
                                           b.valid() ? ToString(b.type()) : "nothing", " in the other"));
  }
  return Where(condition, a, b);
}

bool HaveSameLength(const ImportValue& a, const ImportValue& b) {
  return a.list != nullptr && b.list != nullptr && a.list->present == b.list->present &&
         a.list->elements.size() == b.list->elements.size();
}

absl::StatusOr<ImportValue> SelectValue(Val condition, const ImportValue& a, const ImportValue& b,
                                        std::string_view name) {
  if (a.list == nullptr && b.list == nullptr) {
    ASSIGN_OR_RETURN(const Val v, SelectTensor(condition, a.tensor, b.tensor, name));
    return ImportValue(v);
  }
  if (!HaveSameLength(a, b)) {
    return absl::UnimplementedError(StrCat("its condition is known only at run time, and the sequence or optional '",
                                           Printable(name),
                                           "' differs between the branches in more than its elements' values"));
  }
  ListValue list = *a.list;
  for (size_t i = 0; i < list.elements.size(); ++i) {
    ASSIGN_OR_RETURN(list.elements[i], SelectTensor(condition, a.list->elements[i], b.list->elements[i], name));
  }
  return ImportValue(std::move(list));
}

// Computes both branches and selects by Where, which passes gradients only to the chosen one, even if the other holds
// NaN.
ImportValuesOr ImportBothBranches(ControlNode& c, Val condition) {
  if (condition.dtype() != DType::kBool || condition.type().elements() != 1)
    return Invalid("its condition should be one bool, got ", ToString(condition.type()));
  const auto yes = c.import_body({.attribute = "then_branch", .label = "then", .conditional = true});
  const auto no = c.import_body({.attribute = "else_branch", .label = "else", .conditional = true});
  if (!yes.ok() || !no.ok()) {
    const absl::Status& status = yes.ok() ? no.status() : yes.status();
    if (status != AlreadyReported()) return status;
    return absl::UnimplementedError(
        "its condition is known only at run time, and one of its branches cannot be imported");
  }
  const Val scalar = Reshape(condition, {});
  ImportValues results;
  for (size_t i = 0; i < yes->size(); ++i) {
    ASSIGN_OR_RETURN(ImportValue chosen, SelectValue(scalar, (*yes)[i], (*no)[i], c.node.outputs[i]));
    results.push_back(std::move(chosen));
  }
  return results;
}

}  // namespace

ImportValuesOr ImportIf(ControlNode& c) {
  if (c.inputs.size() != 1) return Invalid("expected 1 input, got ", c.inputs.size());
  ASSIGN_OR_RETURN(const Val condition, RequireTensor(c.inputs[0], "its condition"));
  for (std::string_view branch : {"then_branch", "else_branch"}) {
    ASSIGN_OR_RETURN(const ParsedGraph* graph, FindBody(c.node, branch));
    if (graph->outputs.size() == c.node.outputs.size()) continue;
    return Invalid("lists ", c.node.outputs.size(), " outputs, its ", branch, " has ", graph->outputs.size());
  }
  if (c.known.Find(condition) == nullptr) return ImportBothBranches(c, condition);
  ASSIGN_OR_RETURN(const int64_t taken, c.known.FindInt(c.inputs[0], "its condition"));
  return c.import_body({.attribute = taken != 0 ? "then_branch" : "else_branch"});
}

namespace {

// The numbers of carried and stacked values of a Loop, and the bounds of its iterations.
struct LoopPlan {
  const ParsedGraph* body = nullptr;
  size_t carried = 0, stacked = 0;
  int64_t trip_count = std::numeric_limits<int64_t>::max();
  bool conditioned = false;
  int64_t runs_first = 1;  // the condition before the first iteration
};

absl::StatusOr<LoopPlan> PlanLoop(ControlNode& c) {
  LoopPlan plan;
  ASSIGN_OR_RETURN(plan.body, FindBody(c.node, "body"));
  c.inputs.resize(std::max<size_t>(c.inputs.size(), 2));
  plan.carried = c.inputs.size() - 2;
  const size_t outputs = plan.body->outputs.size();
  if (outputs < 1 + plan.carried)
    return Invalid("carries ", plan.carried, " values, its body has ", outputs, " outputs");
  plan.stacked = outputs - 1 - plan.carried;
  if (c.node.outputs.size() > outputs - 1)
    return Invalid("lists ", c.node.outputs.size(), " outputs, its body has ", outputs - 1);
  const bool counted = c.inputs[0].valid();
  plan.conditioned = c.inputs[1].valid();
  if (!counted && !plan.conditioned) return Invalid("has neither a trip count nor a condition: it would never end");
  if (counted) {
    ASSIGN_OR_RETURN(plan.trip_count, c.known.FindInt(c.inputs[0], "its trip count"));
  }
  if (plan.conditioned) {
    ASSIGN_OR_RETURN(plan.runs_first, c.known.FindInt(c.inputs[1], "its condition"));
  }
  return plan;
}

ImportValuesOr ImportIteration(ControlNode& c, int64_t i, const ImportValues& state) {
  ImportValues arguments = {c.builder.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&i, 1})),
                            c.builder.Constant(HostTensor::Scalar(DType::kBool, 1))};
  arguments.insert(arguments.end(), state.begin(), state.end());
  return c.import_body({.attribute = "body", .label = StrCat(i), .inputs = std::move(arguments)});
}

}  // namespace

ImportValuesOr ImportLoop(ControlNode& c) {
  ASSIGN_OR_RETURN(const LoopPlan plan, PlanLoop(c));
  ImportValues state(c.inputs.begin() + 2, c.inputs.end());
  std::vector<std::vector<Val>> parts(plan.stacked);
  int64_t go = plan.runs_first;
  for (int64_t i = 0; i < plan.trip_count && go != 0; ++i) {
    ASSIGN_OR_RETURN(const ImportValues results, ImportIteration(c, i, state));
    if (plan.conditioned) {
      ASSIGN_OR_RETURN(go, c.known.FindInt(results[0], StrCat("its condition after iteration ", i)));
    }
    state.assign(results.begin() + 1, results.begin() + 1 + static_cast<int64_t>(plan.carried));
    for (size_t k = 0; k < plan.stacked; ++k) {
      ASSIGN_OR_RETURN(parts[k].emplace_back(), RequireTensor(results[1 + plan.carried + k], "a scan output"));
    }
  }
  for (size_t k = 0; k < plan.stacked && plan.carried + k < c.node.outputs.size(); ++k) {
    state.emplace_back();
    if (!c.IsRead(c.node.outputs[plan.carried + k])) continue;
    ASSIGN_OR_RETURN(state.back(), StackIterations(c.builder, parts[k], 0, &plan.body->outputs[1 + plan.carried + k]));
  }
  return state;
}

namespace {

constexpr int64_t kScanOpset = 9;  // the first opset whose Scan has no batch axis

struct ScanPlan {
  size_t states = 0, scanned = 0, stacked = 0;
  std::vector<int64_t> in_axes, in_directions, out_axes, out_directions;
};

// Returns an attribute that has an entry for each of `count` operands.
absl::StatusOr<std::vector<int64_t>> EntriesPerOperand(const Attrs& attrs, std::string_view name, size_t count) {
  std::vector<int64_t> list = attrs.Ints(name, std::vector<int64_t>(count, 0));
  if (list.size() != count) return Invalid(name, " has ", list.size(), " entries, expected ", count);
  return list;
}

absl::StatusOr<ScanPlan> PlanScan(const ControlNode& c, const ParsedGraph& body, size_t inputs, bool version8) {
  ScanPlan plan;
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(c.scope, c.node));
  const Attrs none;
  const int64_t scanned = attrs.Int("num_scan_inputs");
  const size_t outputs = body.outputs.size();
  if (scanned < 1 || static_cast<size_t>(scanned) > inputs)
    return Invalid("num_scan_inputs is ", scanned, " for ", inputs, " inputs");
  plan.scanned = static_cast<size_t>(scanned);
  plan.states = inputs - plan.scanned;
  if (outputs < plan.states) return Invalid("has ", plan.states, " states, its body has ", outputs, " outputs");
  plan.stacked = outputs - plan.states;
  if (c.node.outputs.size() > outputs)
    return Invalid("lists ", c.node.outputs.size(), " outputs, its body has ", outputs);
  const Attrs& newer = version8 ? none : attrs;
  ASSIGN_OR_RETURN(plan.in_directions,
                   EntriesPerOperand(attrs, version8 ? "directions" : "scan_input_directions", plan.scanned));
  ASSIGN_OR_RETURN(plan.in_axes, EntriesPerOperand(newer, "scan_input_axes", plan.scanned));
  ASSIGN_OR_RETURN(plan.out_axes, EntriesPerOperand(newer, "scan_output_axes", plan.stacked));
  ASSIGN_OR_RETURN(plan.out_directions, EntriesPerOperand(newer, "scan_output_directions", plan.stacked));
  return plan;
}

// Returns the extent that all scanned inputs share, and normalizes their axes.
absl::StatusOr<int64_t> ScanLength(const ImportValues& inputs, ScanPlan* plan) {
  int64_t length = -1;
  for (size_t k = 0; k < plan->scanned; ++k) {
    ASSIGN_OR_RETURN(const Val x, RequireTensor(inputs[plan->states + k], "a scan input"));
    ASSIGN_OR_RETURN(plan->in_axes[k], NormalizeAxis(plan->in_axes[k], x.rank()));
    const int64_t extent = x.dim(static_cast<int>(plan->in_axes[k]));
    if (length >= 0 && extent != length)
      return Invalid("scans ", length, " elements of one input and ", extent, " of another");
    length = extent;
  }
  return length;
}

// Returns the inputs of the body in iteration i.
ImportValues ScanArguments(const ScanPlan& plan, const ImportValues& inputs, ImportValues state, int64_t length,
                           int64_t i) {
  for (size_t k = 0; k < plan.scanned; ++k) {
    const int64_t at = plan.in_directions[k] != 0 ? length - 1 - i : i;
    state.push_back(ElementAt(inputs[plan.states + k].tensor, plan.in_axes[k], at));
  }
  return state;
}

ImportValuesOr UnrollScan(ControlNode& c, std::string_view label, const ImportValues& inputs, bool version8) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, FindBody(c.node, "body"));
  ASSIGN_OR_RETURN(ScanPlan plan, PlanScan(c, *body, inputs.size(), version8));
  ASSIGN_OR_RETURN(const int64_t length, ScanLength(inputs, &plan));
  const auto states = static_cast<int64_t>(plan.states);
  ImportValues state(inputs.begin(), inputs.begin() + states);
  std::vector<std::vector<Val>> parts(plan.stacked);
  for (int64_t i = 0; i < length; ++i) {
    ASSIGN_OR_RETURN(
        const ImportValues results,
        c.import_body(
            {.attribute = "body", .label = StrCat(label, i), .inputs = ScanArguments(plan, inputs, state, length, i)}));
    state.assign(results.begin(), results.begin() + states);
    for (size_t k = 0; k < plan.stacked; ++k) {
      ASSIGN_OR_RETURN(parts[k].emplace_back(), RequireTensor(results[plan.states + k], "a scan output"));
    }
  }
  for (size_t k = 0; k < plan.stacked; ++k) {
    if (plan.out_directions[k] != 0) std::ranges::reverse(parts[k]);
    ASSIGN_OR_RETURN(const Val v,
                     StackIterations(c.builder, parts[k], plan.out_axes[k], &body->outputs[plan.states + k]));
    state.push_back(v);
  }
  return state;
}

// Returns the extent of axis 0, which must be the same for all inputs.
absl::StatusOr<int64_t> SharedBatch(const ImportValues& inputs) {
  int64_t batch = -1;
  for (const ImportValue& input : inputs) {
    ASSIGN_OR_RETURN(const Val x, RequireTensor(input, "an input"));
    if (x.rank() < 1 || (batch >= 0 && x.dim(0) != batch))
      return Invalid("expected inputs with one batch in front, got ", ToString(x.type()));
    batch = x.dim(0);
  }
  return batch;
}

// Imports Scan of opset 8, which scans each sample separately: axis 0 of every operand is the batch, axis 1 the
// sequence.
ImportValuesOr ImportScan8(ControlNode& c) {
  if (c.inputs.empty()) return Invalid("has no inputs");
  if (c.inputs[0].valid()) return absl::UnimplementedError("sequence_lens is not supported");
  const ImportValues inputs(c.inputs.begin() + 1, c.inputs.end());
  ASSIGN_OR_RETURN(const int64_t batch, SharedBatch(inputs));
  std::vector<std::vector<Val>> parts;
  for (int64_t sample = 0; sample < batch; ++sample) {
    ImportValues row;
    for (const ImportValue& input : inputs) row.push_back(ElementAt(input.tensor, 0, sample));
    ASSIGN_OR_RETURN(const ImportValues results, UnrollScan(c, StrCat(sample, "/"), row, true));
    parts.resize(results.size());
    for (size_t k = 0; k < results.size(); ++k) {
      ASSIGN_OR_RETURN(parts[k].emplace_back(), RequireTensor(results[k], "an output"));
    }
  }
  ImportValues stacked;
  for (const auto& part : parts) {
    ASSIGN_OR_RETURN(const Val v, StackIterations(c.builder, part, 0, nullptr));
    stacked.push_back(v);
  }
  return stacked;
}

}  // namespace

ImportValuesOr ImportScan(ControlNode& c) {
  const auto opset = c.scope.opsets->find("");
  if (opset == c.scope.opsets->end() || opset->second.newest >= kScanOpset) {
    if (opset != c.scope.opsets->end() && opset->second.oldest.value_or(kScanOpset) < kScanOpset)
      return Invalid("means one thing in opset 8 and another in later ones, and the file imports both");
    return UnrollScan(c, "", c.inputs, false);
  }
  return ImportScan8(c);
}

}  // namespace onnxtrain
