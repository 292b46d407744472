#include "frontend/ops/check.h"

#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

absl::Status CheckNode(const Graph& graph, const Node& node) {
  std::vector<const Type*> inputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? nullptr : &graph.type(v));
  Attrs attrs = node.attrs;
  ASSIGN_OR_RETURN(const std::vector<Type> types, InferTypes(node.op, inputs, attrs));
  if (types.size() != node.outputs.size()) {
    return Invalid("has ", node.outputs.size(), " outputs, its row says ", types.size());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (!(types[i] == graph.type(node.outputs[i]))) {
      return Invalid("output ", i, " has type ", ToString(graph.type(node.outputs[i])), ", its row says ",
                     ToString(types[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Graph& graph) {
  RETURN_IF_ERROR(VerifyStructure(graph));
  for (const Node& node : graph.nodes()) RETURN_IF_ERROR(Annotate(CheckNode(graph, node), NodeTag(node)));
  return absl::OkStatus();
}

}  // namespace onnxtrain
