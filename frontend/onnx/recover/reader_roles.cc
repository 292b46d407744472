#include "frontend/onnx/recover/reader_roles.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

// Returns the node that computes the value, before views and casts.
const ParsedNode* FindComputingNode(const WeightIndex& index, std::string value) {
  for (size_t steps = 0; steps < kMaxVisited; ++steps) {
    const ParsedNode* producer = index.Producer(value);
    if (producer == nullptr || !IsViewOrCast(*producer) || producer->inputs.empty()) return producer;
    value = producer->inputs[0];
  }
  return nullptr;
}

// Matches x / √v and x · 1/√v.
bool IsDividedByRoot(const WeightIndex& index, const std::string& value) {
  const ParsedNode* node = FindComputingNode(index, value);
  if (node == nullptr || node->inputs.size() != 2) return false;
  const auto is = [&](const std::string& factor, std::string_view op) {
    const ParsedNode* producer = FindComputingNode(index, factor);
    return producer != nullptr && IsOp(*producer, {op}) ? producer : nullptr;
  };
  if (IsOp(*node, {"Div"})) return is(node->inputs[1], "Sqrt") != nullptr;
  return IsOp(*node, {"Mul"}) && std::ranges::any_of(node->inputs, [&](const std::string& factor) {
           const ParsedNode* inverse = is(factor, "Reciprocal");
           return inverse != nullptr && !inverse->inputs.empty() && is(inverse->inputs[0], "Sqrt") != nullptr;
         });
}

// Recognizes the scale of a normalization written as primitives by the name of its module, or by the root that it
// divides by.
bool IsScaleOfNorm(const WeightIndex& index, const WeightReader& reader) {
  if (!IsOp(*reader.node, {"Mul"}) || reader.node->inputs.size() != 2) return false;
  std::string module = ScopePath(reader.node->name);
  module.erase(0, module.rfind('/') + 1);
  std::ranges::transform(module, module.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return module.find("norm") != std::string::npos || IsDividedByRoot(index, reader.node->inputs[1 - reader.input]);
}

}  // namespace

std::vector<std::string> ListReadWeights(const WeightIndex& index) {
  std::vector<std::string> names = index.ListInitializers();
  std::erase_if(names, [&](const std::string& name) {
    const HostTensor& tensor = index.graph().initializers.at(name);
    return index.ElementReaders(name).empty() || !IsFloat(tensor.dtype()) || tensor.size() == 0;
  });
  return names;
}

bool IsOfZerosAndOnes(const HostTensor& tensor) {
  std::array<bool, 2> has = {false, false};
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = tensor.At(i);
    if (x != 0 && x != 1) return false;
    has[x == 1 ? 1 : 0] = true;
  }
  return has[0] && has[1];
}

const ParsedNode* FindOnlyReader(const WeightIndex& index, const ParsedNode& node, std::string_view op) {
  if (node.outputs.empty()) return nullptr;
  const auto& readers = index.ElementReaders(node.outputs[0]);
  const bool only = readers.size() == 1 && !index.IsOutput(node.outputs[0]);
  return only && IsOp(*readers[0].node, {op}) ? readers[0].node : nullptr;
}

const HostTensor* FindMatrix(const WeightIndex& index, const WeightReader& reader) {
  const ParsedNode* node = reader.node;
  if (IsOp(*node, {"Add"})) {
    if (node->inputs.size() != 2) return nullptr;
    node = index.Producer(node->inputs[1 - reader.input]);
    if (node == nullptr || !GetOnnxTraits(*node).classifier) return nullptr;
  } else if (GetOnnxTraits(*node).weight_inputs == 0) {
    return nullptr;
  }
  for (const std::string& input : node->inputs) {
    const HostTensor* weight = index.FindTensor(input);
    if (weight != nullptr && weight->size() > 1 && !IsSplat(*weight)) return weight;
  }
  return nullptr;
}

bool TakesOwnWeight(const WeightIndex& index, const WeightReader& reader) {
  const bool is_bias = IsOp(*reader.node, {"Add"}) && FindMatrix(index, reader) != nullptr;
  return TakesWeight(*reader.node, reader.input) || is_bias || IsScaleOfNorm(index, reader);
}

}  // namespace onnxtrain
