#include "frontend/onnx/recover/rows.h"

#include "frontend/base/status.h"
#include "frontend/ops/import/recurrent.h"

namespace onnxtrain {
namespace {

// The second half of B [directions, 2·gates·units].
bool HasZeroRecurrentBias(const HostTensor& bias) {
  if (!IsFloat(bias.dtype()) || bias.shape().size() != 2 || bias.size() == 0) return false;
  const int64_t width = bias.shape()[1];
  for (int64_t i = 0; i < bias.size(); ++i) {
    if (i % width >= width / 2 && bias.At(i) != 0) return false;
  }
  return true;
}

// Whether the cell only uses the sum of the biases.
bool AddsBiases(const ParsedNode& node) {
  return GetOnnxTraits(node).time_major && node.inputs.size() > 3 && node.attrs.Int("linear_before_reset") == 0;
}

}  // namespace

void MarkSingleBiases(OnnxModel::Parsed* model) {
  if (model->producer.starts_with("pytorch")) return;
  for (ParsedNode& node : model->graph.nodes) {
    if (!AddsBiases(node)) continue;
    const auto bias = model->graph.initializers.find(node.inputs[3]);
    if (bias == model->graph.initializers.end() || !HasZeroRecurrentBias(bias->second)) continue;
    node.attrs.Set(kSingleBias, int64_t{1});
    model->notes.push_back(StrCat("the second half of '", Printable(node.inputs[3]),
                                  "' is zeros: not trained, the framework that wrote it has one bias for ",
                                  node.op_type));
  }
}

}  // namespace onnxtrain
