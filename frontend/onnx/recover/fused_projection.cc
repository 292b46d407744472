#include "frontend/onnx/recover/fused_projection.h"

#include <algorithm>
#include <utility>

#include "frontend/onnx/recover/weight_index.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

constexpr size_t kMatrix = 1, kBias = 2;

}  // namespace

bool HoldsProjection(const ParsedNode& node) {
  return node.domain == "com.microsoft" && node.op_type == "Attention" && node.inputs.size() > kMatrix &&
         !node.inputs[kMatrix].empty() && !LacksOperands(node);
}

std::vector<ParsedNode> SplitProjection(ParsedNode* node) {
  const std::string y = node->outputs[0], product = y + "/projection";
  ParsedNode attention = *node;
  node->op_type = "MatMul";
  node->domain = "";
  node->attrs = {};
  node->inputs.resize(kMatrix + 1);
  node->outputs = {product};

  std::vector<ParsedNode> rest;
  attention.domain = kRowDomain;
  attention.op_type = kProjectedAttention;
  attention.inputs[0] = product;
  attention.inputs[kMatrix] = "";
  if (attention.inputs.size() > kBias && !attention.inputs[kBias].empty()) {
    attention.inputs[0] = y + "/biased";
    rest.push_back(MakeRowNode("projection", "Add", {product, attention.inputs[kBias]}, attention.inputs[0], {}));
    attention.inputs[kBias] = "";
  }
  rest.push_back(std::move(attention));
  return rest;
}

std::vector<int64_t> ReadProjectionWidths(const ParsedNode& node, int64_t outputs) {
  std::vector<int64_t> widths = node.attrs.Ints("qkv_hidden_sizes");
  if (widths.empty()) widths.assign(3, outputs / 3);
  const bool positive = std::ranges::all_of(widths, [&](int64_t width) { return width > 0 && width <= outputs; });
  const bool complete = widths.size() == 3 && positive && widths[0] + widths[1] + widths[2] == outputs;
  return complete ? widths : std::vector<int64_t>();
}

}  // namespace onnxtrain
