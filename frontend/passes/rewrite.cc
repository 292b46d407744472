#include "frontend/passes/rewrite.h"

#include <algorithm>

#include "frontend/base/cancellation.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {

Rewriter::Rewriter(const Graph& from, Graph* to)
    : from_(from), to_(to), builder_(to), map_(from.values().size(), kNoValue) {
  to->ReserveAs(from);
  for (const GraphInput& input : from.inputs()) {
    map_[input.value] = to->AddInput(input.kind, input.name, from.type(input.value));
    to->SetValueName(map_[input.value], from.value(input.value).name);
  }
}

Val Rewriter::Map(ValueId old) {
  if (old == kNoValue) return Val();
  CHECK_NE(map_[old], kNoValue) << "value " << old << " has not been rewritten yet";
  return builder_.Wrap(map_[old]);
}

std::vector<Val> Rewriter::MapOperands(const Node& node) {
  std::vector<Val> operands;
  operands.reserve(node.inputs.size());
  for (ValueId v : node.inputs) operands.push_back(Map(v));
  return operands;
}

void Rewriter::Copy(const Node& node) {
  ValueIds inputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? kNoValue : Map(v).id());
  const Node& copy = to_->AddCopy(from_, node, std::move(inputs));
  for (size_t i = 0; i < node.outputs.size(); ++i) map_[node.outputs[i]] = copy.outputs[i];
}

void Rewriter::CopyOutputs() {
  for (const GraphOutput& output : from_.outputs()) {
    to_->AddOutput(output.name, Map(output.value).id(), output.into == kNoValue ? kNoValue : Map(output.into).id());
  }
}

namespace {

// Maps the outputs of a node to `outputs`. Fails if a type changes; a rule may change types only by Rewriter::Set.
absl::Status SetOutputs(const Node& node, const std::vector<Val>& outputs, Rewriter* r) {
  CHECK_EQ(outputs.size(), node.outputs.size()) << NodeTag(node);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    const Type& before = r->from().type(node.outputs[i]);
    if (outputs[i].type() != before) {
      return absl::InternalError(StrCat(NodeTag(node), "replaced by a value of type ", ToString(outputs[i].type()),
                                        ", had ", ToString(before)));
    }
    r->Set(node.outputs[i], outputs[i]);
  }
  return absl::OkStatus();
}

// Gives the new outputs of a node the names of the old ones, unless they have names.
void KeepNames(const Graph& from, const Node& node, Rewriter* r, Graph* to) {
  for (ValueId v : node.outputs) {
    const Shared<std::string>& name = from.value(v).name;
    if (!r->IsSet(v) || name->empty()) continue;
    const ValueId now = r->Map(v).id();
    if (to->value(now).name->empty()) to->SetValueName(now, name);
  }
}

}  // namespace

absl::StatusOr<Graph> Rewrite(const Graph& graph, const RewriteRule& rule, bool* changed,
                              std::vector<ValueId>* values) {
  Graph result;
  Rewriter r(graph, &result);
  for (const Node& node : graph.nodes()) {
    RETURN_IF_ERROR(CheckCancelled());
    const bool is_set = std::ranges::all_of(node.outputs, [&](ValueId v) { return r.IsSet(v); });
    if (!is_set || node.outputs.empty()) {
      r.b().set_source(node.source);
      const auto replacement = rule(r, node);
      RETURN_IF_ERROR(r.b().status());
      if (!replacement) {
        r.Copy(node);
        continue;
      }
      if (changed != nullptr) *changed = true;
      RETURN_IF_ERROR(SetOutputs(node, *replacement, &r));
    }
    KeepNames(graph, node, &r, &result);
  }
  r.CopyOutputs();
  if (values != nullptr) *values = r.values();
  return result;
}

Graph ReorderNodes(const Graph& graph, const std::vector<int32_t>& order) {
  Graph result;
  Rewriter r(graph, &result);
  for (int32_t n : order) r.Copy(graph.nodes()[n]);
  r.CopyOutputs();
  return result;
}

}  // namespace onnxtrain
