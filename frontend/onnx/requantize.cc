#include "frontend/onnx/requantize.h"

#include <onnx/onnx_pb.h>

#include "frontend/base/status.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

Attrs ReadIntAttrs(const onnx::NodeProto& node) {
  Attrs attrs;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_i()) attrs.Set(attribute.name(), int64_t{attribute.i()});
  }
  return attrs;
}

const QuantizedWeight* FindWeightUse(const onnx::NodeProto& node, const std::string& name) {
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  for (int i = 0; i < node.input_size(); ++i) {
    const QuantizedWeight* weight = node.input(i) == name ? FindQuantizedWeight(domain, node.op_type(), i) : nullptr;
    if (weight != nullptr) return weight;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<HostTensor> RequantizeWeight(
    const onnx::GraphProto& graph, const std::string& name, const HostTensor& value, const HostTensor& stored,
    const std::function<absl::StatusOr<HostTensor>(const std::string&)>& known) {
  if (value.shape() != stored.shape())
    return Invalid("has the shape ", ToString(value.shape()), ", the file has ", ToString(stored.shape()));
  for (const onnx::NodeProto& node : graph.node()) {
    const QuantizedWeight* weight = FindGrid(stored.dtype()) ? FindWeightUse(node, name) : nullptr;
    if (weight == nullptr || static_cast<int>(weight->scale) >= node.input_size()) continue;
    ASSIGN_OR_RETURN(const HostTensor scale, known(node.input(static_cast<int>(weight->scale))));
    const int at = static_cast<int>(weight->zero);
    const bool has_zero = at < node.input_size() && !node.input(at).empty();
    HostTensor zero;
    if (has_zero) {
      ASSIGN_OR_RETURN(zero, known(node.input(at)));
    }
    ASSIGN_OR_RETURN(const ScaleLayout layout,
                     WeightScaleLayout(*weight, ReadIntAttrs(node), stored.shape(), scale.shape()));
    if (has_zero && !layout.Fits(zero.shape()))
      return Invalid("has a zero point ", ToString(zero.type()), " beside scales ", ToString(scale.type()));
    return Requantized(value, stored, scale, has_zero ? &zero : nullptr, layout);
  }
  return Invalid("is stored as ", ToString(stored.type()), ", and no node says what its numbers stand for");
}

}  // namespace onnxtrain
