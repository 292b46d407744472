#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

bool HoldsUntrainedWeight(const ParsedGraph& graph, const ParsedNode& node) {
  if (FindPackedWeight(node.domain, node.op_type) != nullptr) return true;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const QuantizedWeight* row = FindQuantizedWeight(node.domain, node.op_type, i);
    if (row == nullptr || !row->scale_behind || node.inputs.size() > row->scale) continue;
    if (graph.initializers.contains(node.inputs[i])) return true;
  }
  return false;
}

}  // namespace

std::string FindUntrainedWeights(const OnnxModel& model) {
  const ParsedGraph& graph = model.parsed().graph;
  std::map<std::string, int> counts;
  for (const ParsedNode& node : graph.nodes) {
    if (HoldsUntrainedWeight(graph, node)) ++counts[StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type)];
  }
  return absl::StrJoin(
      counts, ", ", [](std::string* out, const auto& count) { StrAppend(out, count.first, " (", count.second, ")"); });
}

namespace {

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool IsNumber(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns true for names of values that PyTorch's exporter computed: "onnx::Conv_123" or "123".
bool IsComputedName(const std::string& name, bool others_have_names) {
  return name.starts_with("onnx::Conv_") || (others_have_names && IsNumber(name));
}

// Returns true for the combined names of nodes that TensorFlow folded.
bool NamesNorm(const std::string& name) {
  return Contains(name, "FusedBatchNorm") || Contains(name, "batch_normalization");
}

// Returns true if a name contains that of a batch normalization, or if weight and bias both have computed names. If one
// kept its parameter's name, the exporter only reshaped the other or wrote its parametrization as a constant.
bool HasFoldedNames(const ParsedNode& node, bool others_have_names) {
  if (node.op_type != "Conv" || node.inputs.size() < 3) return false;
  const std::string &weight = node.inputs[1], &bias = node.inputs[2];
  return NamesNorm(weight) || NamesNorm(bias) ||
         (IsComputedName(weight, others_have_names) && IsComputedName(bias, others_have_names));
}

bool NamesParameter(const ParsedNode& node, size_t input) {
  return node.inputs.size() > input && IsParameterName(node.inputs[input]);
}

// Returns true if the weight has a computed name but the bias does not: no BatchNorm was folded. Products without a
// transposition read matrices that the exporter transposed. Scales of normalizations are not transposed.
bool HasFoldedWeight(const ParsedNode& node) {
  const bool norm = IsOp(node, {"BatchNormalization", "LayerNormalization"});
  if (node.inputs.size() < 2 || !(norm || NamesParameter(node, 2)) || node.fx != nullptr) return false;
  return TakesWeight(node, 1) && node.inputs[1].starts_with(StrCat("onnx::", node.op_type, "_"));
}

// Returns true if the node has the fx node of a batch normalization that was fused into it.
bool WasNorm(const ParsedNode& node) {
  const bool is_norm = IsOp(node, {"BatchNormalization"});
  return !is_norm && node.fx != nullptr && Contains(node.fx->target, "batch_norm");
}

bool IsInteger(double x) { return std::abs(x - std::round(x)) < 1e-5 * std::max(1.0, std::abs(x)); }

// Returns true for integers and, in models with a softmax, for their square roots and the inverses of these.
bool IsNumberOfFormula(double x, bool attends) {
  return x == std::round(x) || (attends && (IsInteger(x * x) || IsInteger(1 / (x * x))));
}

}  // namespace

int CountFoldedNorms(const OnnxModel& model) {
  const ParsedGraph& graph = model.parsed().graph;
  const bool have_names =
      std::ranges::any_of(graph.initializer_order, [](const std::string& name) { return Contains(name, ".weight"); });
  return static_cast<int>(std::ranges::count_if(graph.nodes, [&](const ParsedNode& node) {
    return HasFoldedNames(node, have_names) || (TakesWeight(node, 1) && WasNorm(node));
  }));
}

std::vector<std::string> FindFoldedWeights(const OnnxModel& model) {
  std::vector<std::string> found;
  for (const ParsedNode& node : model.parsed().graph.nodes) {
    if (HasFoldedWeight(node) && std::ranges::find(found, node.inputs[1]) == found.end())
      found.push_back(node.inputs[1]);
  }
  return found;
}

std::vector<std::string> FindFoldedNumbers(const OnnxModel& model) {
  const ParsedGraph& graph = model.parsed().graph;
  const bool attends = std::ranges::any_of(graph.nodes, [](const ParsedNode& node) { return IsOp(node, {"Softmax"}); });
  std::vector<std::string> found;
  for (const std::string& name : graph.initializer_order) {
    const auto stored = graph.initializers.find(name);
    if (stored == graph.initializers.end() || !name.starts_with("onnx::")) continue;
    const HostTensor& number = stored->second;
    const bool fixed = IsFloat(number.dtype()) && number.shape().empty();
    if (fixed && !IsNumberOfFormula(number.At(0), attends)) found.push_back(name);
  }
  return found;
}

}  // namespace onnxtrain
