#include "frontend/ops/interpret.h"

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

absl::StatusOr<std::vector<HostTensor>> RunNode(const Node& node, const std::vector<const HostTensor*>& inputs,
                                                const std::vector<Type>& types);

absl::StatusOr<std::vector<HostTensor>> RunDecomposed(const OpRow& row, const Node& node,
                                                      const std::vector<const HostTensor*>& inputs,
                                                      const std::vector<Type>& types) {
  Graph part;
  Builder b(&part);
  DecomposeContext d{b, node.attrs, {}, types};
  std::map<std::string, HostTensor> feeds;
  for (const HostTensor* input : inputs) {
    const std::string name = StrCat("x", d.inputs.size());
    d.inputs.push_back(input == nullptr ? Val() : b.Input(InputKind::kFeed, name, input->type()));
    if (input != nullptr) feeds.emplace(name, *input);
  }
  const std::vector<Val> outputs = row.decompose(d);
  RETURN_IF_ERROR(b.status());
  for (Val y : outputs) part.AddOutput(StrCat("y", part.outputs().size()), y.id());
  return Interpret(part, feeds);
}

absl::StatusOr<std::vector<HostTensor>> RunNode(const Node& node, const std::vector<const HostTensor*>& inputs,
                                                const std::vector<Type>& types) {
  const OpRow* row = FindOp(node.op);
  if (row == nullptr) return Invalid("unknown operator");
  if (row->evaluate != nullptr) return row->evaluate({node.attrs, inputs, types});
  if (row->decompose != nullptr) return RunDecomposed(*row, node, inputs, types);
  return absl::UnimplementedError("cannot be evaluated on the host");
}

}  // namespace

absl::StatusOr<std::vector<HostTensor>> Interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs) {
  std::vector<HostTensor> values(graph.values().size());
  for (const GraphInput& input : graph.inputs()) {
    auto it = inputs.find(input.name);
    if (it == inputs.end()) return Invalid("no value for input '", input.name, "'");
    if (!(it->second.type() == graph.type(input.value))) {
      return Invalid("input '", input.name, "' should be ", ToString(graph.type(input.value)), ", got ",
                     ToString(it->second.type()));
    }
    values[input.value] = it->second;
  }
  for (const Node& node : graph.nodes()) {
    std::vector<const HostTensor*> operands;
    std::vector<Type> types;
    for (ValueId v : node.inputs) operands.push_back(v == kNoValue ? nullptr : &values[v]);
    for (ValueId v : node.outputs) types.push_back(graph.type(v));
    auto results = RunNode(node, operands, types);
    if (!results.ok()) return Annotate(results.status(), NodeTag(node));
    for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = (*results)[i];
  }
  std::vector<HostTensor> outputs;
  for (const GraphOutput& output : graph.outputs()) outputs.push_back(values[output.value]);
  return outputs;
}

}  // namespace onnxtrain
