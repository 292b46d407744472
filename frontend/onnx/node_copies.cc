#include "frontend/onnx/node_copies.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>

namespace onnxtrain {
namespace {

using Positions = std::map<std::string, int>;  // of nodes, by output

Positions FindNodes(const onnx::GraphProto& graph) {
  Positions positions;
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string& output : graph.node(i).output()) positions.emplace(output, i);
  }
  return positions;
}

// Moves the last node to a position.
void MoveLast(int position, onnx::GraphProto* graph) {
  auto* nodes = graph->mutable_node();
  for (int i = graph->node_size() - 1; i > position; --i) nodes->SwapElements(i, i - 1);
}

bool HasReader(const FileReader& reader, const Positions& positions, const onnx::GraphProto& graph) {
  const auto node = positions.find(reader.node);
  return node != positions.end() && static_cast<int>(reader.input) < graph.node(node->second).input_size();
}

onnx::NodeProto MakeCopy(const onnx::NodeProto& node, const SplitNodes& split) {
  onnx::NodeProto copy = node;
  for (const auto& [old, own] : split.outputs) {
    std::replace(copy.mutable_input()->begin(), copy.mutable_input()->end(), old, own);
    std::replace(copy.mutable_output()->begin(), copy.mutable_output()->end(), old, own);
  }
  if (!copy.name().empty()) copy.set_name(copy.output(0));
  return copy;
}

}  // namespace

bool AddNodeCopies(const SplitNodes& split, onnx::GraphProto* graph) {
  const Positions positions = FindNodes(*graph);
  const bool complete =
      std::ranges::all_of(split.outputs, [&](const auto& output) { return positions.contains(output.first); }) &&
      std::ranges::all_of(split.readers, [&](const auto& reader) { return HasReader(reader, positions, *graph); });
  if (!complete) return false;
  for (const FileReader& reader : split.readers) {
    graph->mutable_node(positions.at(reader.node))
        ->set_input(static_cast<int>(reader.input), split.outputs.back().second);
  }
  int behind = 0;
  for (const auto& [output, copy] : split.outputs) behind = std::max(behind, positions.at(output) + 1);
  for (const auto& [output, copy] : split.outputs) {
    const onnx::NodeProto made = MakeCopy(graph->node(positions.at(output)), split);
    *graph->add_node() = made;
    MoveLast(behind++, graph);
  }
  return true;
}

}  // namespace onnxtrain
