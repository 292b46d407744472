#include "frontend/onnx/write/requantize.h"

#include <onnx/onnx_pb.h>

#include <unordered_set>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/product_scales.h"

namespace onnxtrain {
namespace {

Attrs ReadIntAttrs(const onnx::NodeProto& node) {
  Attrs attrs;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_i()) attrs.Set(attribute.name(), int64_t{attribute.i()});
  }
  return attrs;
}

std::string DomainOf(const onnx::NodeProto& node) { return node.domain() == "ai.onnx" ? "" : node.domain(); }

std::map<size_t, std::string> FindScalesBehind(const onnx::GraphProto& graph) {
  std::vector<NodeNames> nodes;
  for (const onnx::NodeProto& node : graph.node()) {
    nodes.push_back({DomainOf(node),
                     node.op_type(),
                     {node.input().begin(), node.input().end()},
                     {node.output().begin(), node.output().end()}});
  }
  std::unordered_set<std::string> initializers;
  for (const auto& initializer : graph.initializer()) initializers.insert(initializer.name());
  return FindProductScales(nodes, [&](const std::string& name) { return initializers.contains(name); });
}

}  // namespace

Requantizer::Requantizer(const onnx::GraphProto& graph) {
  for (const onnx::NodeProto& node : graph.node()) {
    if (node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1)
      copies_[node.output(0)] = node.input(0);
  }
  std::map<size_t, std::string> behind = FindScalesBehind(graph);
  for (int i = 0; i < graph.node_size(); ++i) AddUses(graph.node(i), behind[i]);
}

void Requantizer::AddUses(const onnx::NodeProto& node, const std::string& scale_behind) {
  const auto input = [&](size_t i) -> std::string {
    return i < static_cast<size_t>(node.input_size()) ? Source(node.input(static_cast<int>(i))) : "";
  };
  for (size_t i = 0; i < static_cast<size_t>(node.input_size()); ++i) {
    const QuantizedWeight* row = FindQuantizedWeight(DomainOf(node), node.op_type(), i);
    if (row == nullptr || row->packed) continue;
    const std::string scale = row->scale_behind ? scale_behind : input(row->scale);
    if (!scale.empty()) uses_.try_emplace(input(i), Use{&node, row, scale, input(row->factor), input(row->zero)});
  }
}

const std::string& Requantizer::Source(const std::string& name) const {
  const std::string* source = &name;
  for (auto it = copies_.find(name); it != copies_.end(); it = copies_.find(*source)) source = &it->second;
  return *source;
}

absl::StatusOr<HostTensor> Requantizer::Quantize(const std::string& name, const HostTensor& value,
                                                 const HostTensor& stored, const FindConstant& find) const {
  if (value.shape() != stored.shape())
    return Invalid("has the shape ", ToString(value.shape()), ", the file has ", ToString(stored.shape()));
  const auto use = uses_.find(name);
  if (use == uses_.end() || !FindGrid(stored.dtype()))
    return Invalid("is stored as ", ToString(stored.type()), ", and no node says what its numbers stand for");
  const auto& [node, row, scale_name, factor, zero_name] = use->second;
  ASSIGN_OR_RETURN(HostTensor scale, find(scale_name));
  if (!factor.empty()) {
    ASSIGN_OR_RETURN(const HostTensor other, find(factor));
    scale = ProductOfScales(scale, other);
  }
  HostTensor zero;
  if (!zero_name.empty()) {
    ASSIGN_OR_RETURN(zero, find(zero_name));
  }
  ASSIGN_OR_RETURN(const ScaleLayout layout,
                   WeightScaleLayout(*row, ReadIntAttrs(*node), stored.shape(), scale.shape()));
  if (!zero_name.empty() && !layout.Fits(zero.shape()))
    return Invalid("has a zero point ", ToString(zero.type()), " beside scales ", ToString(scale.type()));
  return Requantized(value, stored, scale, zero_name.empty() ? nullptr : &zero, layout);
}

}  // namespace onnxtrain
