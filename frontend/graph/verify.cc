#include "frontend/graph/verify.h"

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::Status CheckType(const Type& type) {
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (type.layout == Layout::kChannelsLast && type.rank() < 3) return Invalid("no such layout: ", ToString(type));
  return absl::OkStatus();
}

absl::Status CheckNode(const Graph& graph, size_t n) {
  const Node& node = graph.nodes()[n];
  const auto count = static_cast<ValueId>(graph.values().size());
  for (ValueId v : node.inputs) {
    if (v == kNoValue) continue;
    if (v < 0 || v >= count) return Invalid(NodeTag(node), "reads value ", v, ", which does not exist");
    if (graph.value(v).node >= static_cast<int32_t>(n)) {
      return Invalid(NodeTag(node), "reads %", v, " before it is computed");
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId v = node.outputs[i];
    if (v < 0 || v >= count) return Invalid(NodeTag(node), "defines value ", v, ", which does not exist");
    const Value& value = graph.value(v);
    if (value.node != static_cast<int32_t>(n) || value.index != static_cast<int32_t>(i)) {
      return Invalid(NodeTag(node), "does not own its output %", v);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const Graph& graph, const GraphOutput& output) {
  const auto count = static_cast<ValueId>(graph.values().size());
  if (output.value < 0 || output.value >= count) return Invalid("output '", output.name, "' is not bound to a value");
  if (output.into == kNoValue) return absl::OkStatus();
  if (output.into < 0 || output.into >= count || !graph.IsInput(output.into)) {
    return Invalid("output '", output.name, "' is written into a value that is no graph input");
  }
  if (!(graph.type(output.value) == graph.type(output.into))) {
    return Invalid("output '", output.name, "' of type ", ToString(graph.type(output.value)),
                   " is written into an input of type ", ToString(graph.type(output.into)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyStructure(const Graph& graph) {
  for (const Value& value : graph.values()) RETURN_IF_ERROR(CheckType(value.type));
  for (size_t n = 0; n < graph.nodes().size(); ++n) RETURN_IF_ERROR(CheckNode(graph, n));
  for (const GraphOutput& output : graph.outputs()) RETURN_IF_ERROR(CheckOutput(graph, output));
  return absl::OkStatus();
}

}  // namespace onnxtrain
