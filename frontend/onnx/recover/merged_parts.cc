#include "frontend/onnx/recover/merged_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "frontend/base/strings.h"
#include "frontend/onnx/recover/copied_nodes.h"
#include "frontend/onnx/recover/fx_names.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/tensor_compare.h"

namespace onnxtrain {
namespace {

using Readers = std::map<std::string, std::vector<WeightReader>, ByNumber>;  // by module

class PartSeparator {
 public:
  PartSeparator(const TorchMetadata& metadata, ParsedGraph* graph)
      : graph_(*graph), unread_(FindUnreadParameters(metadata, *graph)), copies_(*graph) {
    for (const ParsedValue& output : graph_.outputs) outputs_.insert(output.name);
  }

  void Run() {
    if (unread_.empty()) return;
    std::vector<size_t> found;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (TakesApart(graph_.nodes[i])) found.push_back(i);
    }
    ListReaders(found);
    for (const size_t i : found) Separate(i);
    copies_.InsertInto(&graph_);
  }

 private:
  bool TakesApart(const ParsedNode& node) const {
    if (!node.domain.empty() || node.op_type != "Split" || node.fx != nullptr || node.inputs.empty()) return false;
    const auto stored = graph_.initializers.find(node.inputs[0]);
    return stored != graph_.initializers.end() && IsSplat(stored->second) &&
           std::ranges::none_of(node.outputs, [&](const auto& o) { return o.empty() || outputs_.contains(o); });
  }

  void ListReaders(const std::vector<size_t>& splits) {
    for (const size_t i : splits) {
      for (const std::string& output : graph_.nodes[i].outputs) readers_[output];
    }
    for (ParsedNode& node : graph_.nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto read = readers_.find(node.inputs[i]);
        if (read != readers_.end()) read->second.push_back({.node = &node, .input = i});
      }
    }
  }

  // The readers of its outputs by module. Empty where one belongs to no module.
  Readers FindReaders(const ParsedNode& split) const {
    Readers by_module;
    for (const std::string& output : split.outputs) {
      for (const WeightReader& reader : readers_.at(output)) {
        const ParsedNode& node = *reader.node;
        const bool known = node.fx != nullptr && !node.fx->module.empty();
        if (!known || node.outputs.empty() || node.outputs[0].empty()) return {};
        by_module[node.fx->module].push_back(reader);
      }
    }
    return by_module;
  }

  void Separate(size_t at) {
    ParsedNode& split = graph_.nodes[at];
    const std::string weight = split.inputs[0], part(LastPart(weight));
    const Readers readers = FindReaders(split);
    bool free = !readers.contains(std::string(ParentOf(weight)));  // its module reads the parameter itself
    for (const auto& [module, own] : readers) {
      const auto parameter = unread_.find(StrCat(module, ".", part));
      if (parameter == unread_.end()) continue;
      const auto fx = std::make_shared<FxNode>(FxNode{.name = StrCat("parts of ", parameter->first),
                                                      .target = "split",
                                                      .args = {parameter->second},
                                                      .module = module});
      if (parameter->first == weight || std::exchange(free, false)) {
        split.fx = fx;
      } else {
        Copy(at, fx, own);
      }
    }
  }

  void Copy(size_t at, const std::shared_ptr<const FxNode>& fx, const std::vector<WeightReader>& readers) {
    ParsedNode copy = graph_.nodes[at];
    SplitNodes split;
    copy.source = StrCat(copy.source, "/", fx->module);
    copy.fx = fx;
    for (std::string& output : copy.outputs) {
      split.outputs.emplace_back(output, copies_.NameOutput(output, fx->module));
      output = split.outputs.back().second;
    }
    for (const WeightReader& reader : readers) {
      split.readers.push_back({.node = reader.node->outputs[0], .input = reader.input});
      for (const auto& [old, own] : split.outputs) {
        if (reader.node->inputs[reader.input] == old) reader.node->inputs[reader.input] = own;
      }
    }
    copies_.Add(at, std::move(copy));
    graph_.shared.nodes.push_back(std::move(split));
  }

  ParsedGraph& graph_;
  std::map<std::string, std::string> unread_;  // placeholders of parameters that no fx node reads, by name
  std::set<std::string> outputs_;              // of the model
  std::map<std::string, std::vector<WeightReader>> readers_;  // by output of the nodes that take parameters apart
  CopiedNodes copies_;
};

}  // namespace

void SplitMergedParts(const TorchMetadata& metadata, ParsedGraph* graph) { PartSeparator(metadata, graph).Run(); }

}  // namespace onnxtrain
