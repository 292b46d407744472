#include <algorithm>
#include <optional>
#include <string>

#include "frontend/onnx/recover/rows.h"

namespace onnxtrain {
namespace {

// Returns the floats that DynamicQuantizeLinear made the value of.
std::string FindFloats(const std::string& quantized, const FindNode& find) {
  const auto node = find(quantized);
  return node && node->op_type == "DynamicQuantizeLinear" && !node->inputs.empty() ? node->inputs[0] : "";
}

// Finds MatMulInteger before a Cast, and before the Add of a rounded bias.
std::optional<IntegerProduct> FindBeforeCast(const std::string& value, const FindNode& find) {
  const auto cast = find(value);
  if (!cast || cast->op_type != "Cast" || cast->inputs.empty()) return std::nullopt;
  std::vector<std::string> candidates = {cast->inputs[0]};
  if (const auto sum = find(candidates[0]); sum && sum->op_type == "Add") candidates = sum->inputs;
  for (const std::string& output : candidates) {
    const auto product = find(output);
    if (!product || product->op_type != "MatMulInteger" || product->inputs.size() < 2) continue;
    return IntegerProduct{
        .floats = FindFloats(product->inputs[0], find), .weight = product->inputs[1], .product = output};
  }
  return std::nullopt;
}

}  // namespace

std::optional<NodeParts> PartsOf(const ParsedNode* node) {
  if (node == nullptr) return std::nullopt;
  return NodeParts{.op_type = node->op_type, .inputs = node->inputs};
}

std::optional<IntegerProduct> FindIntegerProduct(const std::string& value, const FindNode& find) {
  const auto node = find(value);
  if (!node || node->inputs.size() < 2) return std::nullopt;
  std::optional<IntegerProduct> found;
  if (node->op_type == "DynamicQuantizeMatMul") {
    found = {.floats = node->inputs[0], .weight = node->inputs[1], .product = value};
  } else if (node->op_type == "MatMulIntegerToFloat") {
    found = {.floats = FindFloats(node->inputs[0], find), .weight = node->inputs[1], .product = value};
  } else if (node->op_type == "Mul") {
    for (size_t i = 0; i < 2 && !found; ++i) found = FindBeforeCast(node->inputs[i], find);
  }
  return found && !found->floats.empty() ? found : std::nullopt;
}

}  // namespace onnxtrain
