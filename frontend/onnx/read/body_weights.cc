#include "frontend/onnx/read/body_weights.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/read/proto_util.h"

namespace onnxtrain {
namespace {

using Definitions = std::unordered_map<std::string, int>;

void CountDefinitions(const onnx::GraphProto& graph, Definitions* count) {
  for (const auto& input : graph.input()) ++(*count)[input.name()];
  for (const auto& initializer : graph.initializer()) ++(*count)[initializer.name()];
  for (const auto& node : graph.node()) {
    for (const std::string& output : node.output()) ++(*count)[output];
  }
}

bool IsWeight(const onnx::TensorProto& tensor) {
  constexpr onnx::TensorProto::DataType kFloats[] = {onnx::TensorProto::FLOAT, onnx::TensorProto::DOUBLE,
                                                     onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16};
  // The reader checks the extents later.
  return std::ranges::find(kFloats, tensor.data_type()) != std::end(kFloats) &&
         std::ranges::any_of(tensor.dims(), [](int64_t extent) { return extent != 1; });
}

// Returns the tensor of a Constant node, or null.
onnx::TensorProto* ConstantTensor(onnx::NodeProto* node) {
  if (!IsOnnxOp(*node, "Constant") || node->output_size() != 1) return nullptr;
  onnx::AttributeProto* value = FindAttribute(node, "value");
  return value != nullptr && value->has_t() ? value->mutable_t() : nullptr;
}

// Removes matching elements and keeps the order of the others.
template <typename List, typename Moves>
void RemoveIf(List* list, const Moves& moves) {
  list->erase(std::remove_if(list->begin(), list->end(), moves), list->end());
}

}  // namespace

void ForEachBody(onnx::GraphProto* graph, const std::function<void(onnx::GraphProto*)>& visit) {
  const auto enter = [&](onnx::GraphProto* body) {
    visit(body);
    ForEachBody(body, visit);
  };
  for (auto& node : *graph->mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) enter(attribute.mutable_g());
      for (auto& body : *attribute.mutable_graphs()) enter(&body);
    }
  }
}

void MoveBodyWeights(onnx::GraphProto* graph) {
  std::vector<onnx::GraphProto*> bodies;
  ForEachBody(graph, [&](onnx::GraphProto* body) { bodies.push_back(body); });
  if (bodies.empty()) return;
  Definitions count;
  CountDefinitions(*graph, &count);
  for (const onnx::GraphProto* body : bodies) CountDefinitions(*body, &count);
  const auto move = [&](const std::string& name, onnx::TensorProto* tensor) {
    if (tensor == nullptr || count[name] != 1 || !IsWeight(*tensor)) return false;
    onnx::TensorProto* moved = graph->add_initializer();
    moved->Swap(tensor);
    moved->set_name(name);
    return true;
  };
  for (onnx::GraphProto* body : bodies) {
    RemoveIf(body->mutable_initializer(), [&](auto& tensor) { return move(std::string(tensor.name()), &tensor); });
    RemoveIf(body->mutable_node(),
             [&](auto& node) { return node.output_size() == 1 && move(node.output(0), ConstantTensor(&node)); });
  }
}

}  // namespace onnxtrain
