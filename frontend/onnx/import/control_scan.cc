#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/import/control_flow.h"

namespace onnxtrain {
namespace {

constexpr int64_t kScanOpset = 9;  // the first one whose Scan has no batch

struct ScanPlan {
  size_t states = 0, scanned = 0, stacked = 0;
  std::vector<int64_t> in_axes, in_directions, out_axes, out_directions;
};

// An attribute with an entry for each of `count` operands.
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

// The inputs of the body in iteration i.
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

// The extent of axis 0, which all inputs share.
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

// Opset 8 scans each sample of a batch by itself: axis 0 of every operand is the batch, axis 1 the sequence.
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
