#include "frontend/onnx/read/filled_inputs.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace onnxtrain {
namespace {

bool Moves(const ParsedNode& node) {
  const OnnxTraits& traits = GetOnnxTraits(node);
  return traits.view || traits.moves || (node.domain.empty() && node.op_type == "Cast");
}

bool TestsForNan(const ParsedNode& node) {
  if (node.domain.empty()) return node.op_type == "IsNaN";
  return node.domain == "ai.onnx.ml" && node.op_type == "Imputer" &&
         std::isnan(node.attrs.Float("replaced_value_float"));
}

}  // namespace

std::set<std::string> FindFilledInputs(const ParsedGraph& graph) {
  std::unordered_set<std::string> tested;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto is_tested = [&](const std::string& output) { return tested.contains(output); };
    const bool moves = std::ranges::any_of(node->outputs, is_tested) && Moves(*node);
    if (moves || TestsForNan(*node)) tested.insert(node->inputs.begin(), node->inputs.end());
  }
  std::set<std::string> inputs;
  for (const ParsedValue& input : graph.inputs) {
    if (input.dtype && IsFloat(*input.dtype) && tested.contains(input.name)) inputs.insert(input.name);
  }
  return inputs;
}

}  // namespace onnxtrain
