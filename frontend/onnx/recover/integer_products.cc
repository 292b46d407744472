#include <algorithm>
#include <iterator>
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
    return IntegerProduct{.x = FindFloats(product->inputs[0], find), .weight = product->inputs[1], .product = output};
  }
  return std::nullopt;
}

// Operators on quantized x and W, each followed by scale and zero point, and the input that is the result's scale.
struct QuantizedProduct {
  std::string_view op_type;
  size_t result;
};
constexpr QuantizedProduct kQuantizedProducts[] = {{"QLinearMatMul", 6}, {"QGemm", 7}};

std::optional<IntegerProduct> FindQuantizedProduct(const NodeParts& node, const std::string& value) {
  const auto* row = std::ranges::find(kQuantizedProducts, node.op_type, &QuantizedProduct::op_type);
  if (row == std::end(kQuantizedProducts) || node.inputs.size() < 6) return std::nullopt;
  const auto encoding = [&](size_t scale) {
    const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : ""; };
    return Encoding{.scale = input(scale), .zero = input(scale + 1)};
  };
  return IntegerProduct{.x = node.inputs[0],
                        .weight = node.inputs[3],
                        .product = value,
                        .x_form = encoding(1),
                        .y_form = encoding(row->result)};
}

}  // namespace

std::optional<NodeParts> PartsOf(const ParsedNode* node) {
  if (node == nullptr) return std::nullopt;
  return NodeParts{.op_type = node->op_type, .inputs = node->inputs};
}

std::optional<IntegerProduct> FindIntegerProduct(const std::string& value, const FindNode& find) {
  const auto node = find(value);
  if (!node || node->inputs.size() < 2) return std::nullopt;
  std::optional<IntegerProduct> found = FindQuantizedProduct(*node, value);
  if (node->op_type == "DynamicQuantizeMatMul") {
    found = {.x = node->inputs[0], .weight = node->inputs[1], .product = value};
  } else if (node->op_type == "MatMulIntegerToFloat") {
    found = {.x = FindFloats(node->inputs[0], find), .weight = node->inputs[1], .product = value};
  } else if (node->op_type == "Mul") {
    for (size_t i = 0; i < 2 && !found; ++i) found = FindBeforeCast(node->inputs[i], find);
  }
  return found && !found->x.empty() ? found : std::nullopt;
}

}  // namespace onnxtrain
