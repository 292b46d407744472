#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

// Returns true if the node swaps the last two axes.
bool SwapsLastAxes(const ParsedNode& node) {
  if (!IsOp(node, {"Transpose"})) return false;
  std::vector<int64_t> perm = node.attrs.Ints("perm");
  if (perm.size() < 2) return false;
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Returns true if the indices of a GatherND have one number each: an axis of extent 1 was appended to them.
bool IndexOneAxis(const ParsedNode* indices, const FindTensor& tensor) {
  if (indices == nullptr || !IsOp(*indices, {"Unsqueeze"})) return false;
  if (indices->attrs.Has("axes")) return indices->attrs.Ints("axes") == std::vector<int64_t>{-1};
  const HostTensor* axes = indices->inputs.size() > 1 ? tensor(indices->inputs[1]) : nullptr;
  return axes != nullptr && axes->size() == 1 && axes->IntAt(0) == -1;
}

// Walks back from an operand to the stored weight.
std::optional<ExpertProduct> WalkBack(std::string value, const FindProducer& producer, const FindTensor& tensor) {
  ExpertProduct found;
  while (const ParsedNode* node = producer(value)) {
    const bool swaps = SwapsLastAxes(*node);
    if (!swaps && !IsIdentity(*node) && !SelectsMatrices(*node, producer, tensor)) return std::nullopt;
    found.transposed ^= swaps;
    found.path.push_back(node);
    value = node->inputs[0];
  }
  const HostTensor* weight = tensor(value);
  if (weight == nullptr || weight->shape().size() != 3 || !IsFloat(weight->dtype())) return std::nullopt;
  found.weight = value;
  return found;
}

}  // namespace

bool SelectsMatrices(const ParsedNode& node, const FindProducer& producer, const FindTensor& tensor) {
  if (IsOp(node, {"Gather"})) return node.attrs.Int("axis") == 0;
  if (!IsOp(node, {"GatherND"}) || node.inputs.size() != 2 || node.attrs.Int("batch_dims") != 0) return false;
  return IndexOneAxis(producer(node.inputs[1]), tensor);
}

const ExpertLayer* FindMixtureLayer(const ParsedNode& node, const std::string& weight) {
  for (const ExpertLayer& layer : FindExpertLayers(node.domain, node.op_type)) {
    if (layer.weight < node.inputs.size() && node.inputs[layer.weight] == weight) return &layer;
  }
  return nullptr;
}

std::optional<ExpertProduct> FindExpertProduct(const ParsedNode& product, const FindProducer& producer,
                                               const FindTensor& tensor) {
  if (!IsOp(product, {"MatMul"}) || product.inputs.size() != 2) return std::nullopt;
  for (const size_t operand : {size_t{1}, size_t{0}}) {
    if (auto found = WalkBack(product.inputs[operand], producer, tensor)) {
      found->operand = operand;
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace onnxtrain
