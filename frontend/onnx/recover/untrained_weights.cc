#include "frontend/onnx/recover/untrained_weights.h"

#include <map>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/read/parsed.h"
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

}  // namespace onnxtrain
