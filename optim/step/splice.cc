#include "optim/step/splice.h"

#include "frontend/base/status.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
