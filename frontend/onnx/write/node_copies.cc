#include "frontend/onnx/write/node_copies.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

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

// The copy of a value that a reader of the copies has; of others, which a node between them made, that of the last.
const std::string& CopyOf(const std::string& value, const SplitNodes& split) {
  const auto found = std::ranges::find(split.outputs, value, &std::pair<std::string, std::string>::first);
  return found == split.outputs.end() ? split.outputs.back().second : found->second;
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
    std::string* input = graph->mutable_node(positions.at(reader.node))->mutable_input(static_cast<int>(reader.input));
    *input = CopyOf(*input, split);
  }
  std::vector<onnx::NodeProto> made;
  std::set<int> copied;  // one of several outputs has a copy for each of them
  for (const auto& [output, copy] : split.outputs) {
    const int at = positions.at(output);
    if (copied.insert(at).second) made.push_back(MakeCopy(graph->node(at), split));
  }
  int behind = *copied.rbegin() + 1;
  for (onnx::NodeProto& copy : made) {
    *graph->add_node() = std::move(copy);
    MoveLast(behind++, graph);
  }
  return true;
}

}  // namespace onnxtrain
