#include "optim/parallel/pipeline/extract.h"

#include "frontend/base/log.h"

namespace onnxtrain {
namespace {

std::vector<bool> FindRead(const Graph& whole, const std::vector<bool>& keep, const std::vector<ValueId>& wanted) {
  std::vector<bool> read(whole.values().size());
  for (const ValueId v : wanted) read[v] = true;
  for (size_t n = 0; n < keep.size(); ++n) {
    if (!keep[n]) continue;
    for (const ValueId v : whole.nodes()[n].inputs) {
      if (v != kNoValue) read[v] = true;
    }
  }
  return read;
}

void CopyNode(const Graph& whole, const Node& node, ExtractedGraph* part) {
  ValueIds inputs;
  for (const ValueId v : node.inputs) {
    inputs.push_back(v == kNoValue ? kNoValue : part->values[v]);
    CHECK(v == kNoValue || inputs.back() != kNoValue) << "a value that is not cut: " << NodeTag(node);
  }
  const Node& copy = part->graph.AddCopy(whole, node, std::move(inputs));
  for (size_t i = 0; i < copy.outputs.size(); ++i) part->values[node.outputs[i]] = copy.outputs[i];
}

}  // namespace

ExtractedGraph Extract(const Graph& whole, const std::vector<bool>& keep, const std::vector<CutValue>& cuts,
                       const std::vector<ValueId>& wanted) {
  ExtractedGraph part{.values = std::vector<ValueId>(whole.values().size(), kNoValue)};
  const std::vector<bool> read = FindRead(whole, keep, wanted);
  const auto add = [&](ValueId v, InputKind kind, const std::string& name) {
    part.values[v] = part.graph.AddInput(kind, name, whole.type(v));
    part.graph.SetValueName(part.values[v], whole.value(v).name);
  };
  const auto add_all = [&](bool feeds) {
    for (const GraphInput& input : whole.inputs()) {
      if (read[input.value] && (input.kind == InputKind::kFeed) == feeds) add(input.value, input.kind, input.name);
    }
    for (const CutValue& cut : cuts) {
      if ((cut.kind == InputKind::kFeed) == feeds) add(cut.value, cut.kind, cut.name);
    }
  };
  add_all(true);
  add_all(false);
  for (size_t n = 0; n < keep.size(); ++n) {
    if (keep[n]) CopyNode(whole, whole.nodes()[n], &part);
  }
  return part;
}

}  // namespace onnxtrain
