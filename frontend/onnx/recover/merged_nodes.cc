#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/tensor_compare.h"

namespace onnxtrain {
namespace {

// Copies of nodes that read parameters of their own: the parts that the readers of merged nodes share.

// Collects copies of a graph's nodes.
class CopiedNodes {
 public:
  explicit CopiedNodes(const ParsedGraph& graph) : graph_(graph) {}

  // Returns OUTPUT/MODULE, with a number where the graph has a value of that name.
  std::string NameOutput(std::string_view output, std::string_view module);
  // Adds a copy, to follow the node at this position and the copies that were added there before.
  void Add(size_t position, ParsedNode copy) { copies_[position].push_back(std::move(copy)); }
  // Inserts the copies into the graph, and forgets them.
  void InsertInto(ParsedGraph* graph);

 private:
  const ParsedGraph& graph_;
  std::set<std::string> taken_;  // names of values; filled when the first is asked for
  std::map<size_t, std::vector<ParsedNode>> copies_;
};

std::set<std::string> ListValues(const ParsedGraph& graph) {
  std::set<std::string> names;
  for (const ParsedValue& input : graph.inputs) names.insert(input.name);
  for (const auto& [name, tensor] : graph.initializers) names.insert(name);
  for (const ParsedNode& node : graph.nodes) names.insert(node.outputs.begin(), node.outputs.end());
  return names;
}

// Returns the placeholders of the parameters that no fx node reads, by the parameters' names.
std::map<std::string, std::string> FindUnreadParameters(const TorchMetadata& metadata, const ParsedGraph& graph) {
  std::set<std::string_view> args;
  for (const ParsedNode& node : graph.nodes) {
    if (node.fx != nullptr) args.insert(node.fx->args.begin(), node.fx->args.end());
  }
  std::map<std::string, std::string> unread;
  for (const auto& [placeholder, entry] : metadata.signature) {
    if (entry.kind == SignatureEntry::Kind::kParameter && !args.contains(placeholder))
      unread.emplace(entry.target, placeholder);
  }
  return unread;
}

std::string CopiedNodes::NameOutput(std::string_view output, std::string_view module) {
  if (taken_.empty()) taken_ = ListValues(graph_);
  const std::string name = StrCat(output, "/", module);
  std::string own = name;
  for (int i = 2; !taken_.insert(own).second; ++i) own = StrCat(name, "_", i);
  return own;
}

void CopiedNodes::InsertInto(ParsedGraph* graph) {
  if (copies_.empty()) return;
  std::vector<ParsedNode> nodes;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    nodes.push_back(std::move(graph->nodes[i]));
    const auto found = copies_.find(i);
    if (found != copies_.end()) std::ranges::move(found->second, std::back_inserter(nodes));
  }
  graph->nodes = std::move(nodes);
  copies_.clear();
}

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

namespace {

using Parts = std::map<std::string, std::string>;  // placeholder, by the last part of the parameter's name

// An fx node with parameters of one module, and the nodes that it was translated to.
struct Group {
  std::shared_ptr<const FxNode> fx;
  std::string module;
  std::vector<size_t> nodes;
  Parts parts;
};

// Readers of a group's value that name another fx node, by that name.
using Readers = std::map<std::string, std::vector<WeightReader>, ByNumber>;

class Separator {
 public:
  Separator(const TorchMetadata& metadata, ParsedGraph* graph) : metadata_(metadata), graph_(*graph), copies_(*graph) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) AddNode(i);
    for (const auto& [parameter, placeholder] : FindUnreadParameters(metadata_, graph_)) {
      if (!graph_.initializers.contains(parameter))
        unread_[std::string(ParentOf(parameter))].emplace(LastPart(parameter), placeholder);
    }
  }

  void Run() {
    if (unread_.empty()) return;
    for (auto& [name, group] : groups_) {
      if (FindParameters(&group)) Separate(group);
    }
    copies_.InsertInto(&graph_);
  }

 private:
  void AddNode(size_t i) {
    const ParsedNode& node = graph_.nodes[i];
    if (node.fx == nullptr) return;
    Group& group = groups_[node.fx->name];
    group.fx = node.fx;
    group.nodes.push_back(i);
  }

  // Returns false unless the fx node reads parameters of exactly one module.
  bool FindParameters(Group* group) const {
    for (const std::string& arg : group->fx->args) {
      const auto entry = metadata_.signature.find(arg);
      if (entry == metadata_.signature.end() || entry->second.kind != SignatureEntry::Kind::kParameter) continue;
      const std::string_view module = ParentOf(entry->second.target);
      if (!group->parts.empty() && module != group->module) return false;
      group->module = module;
      group->parts.emplace(LastPart(entry->second.target), arg);
    }
    return !group->parts.empty();
  }

  // Modules within this one, with parameters of the names that the group has, which no fx node reads.
  std::vector<std::string> ListRivals(const Group& group, std::string_view parent) const {
    const auto same_names = [](const auto& a, const auto& b) { return a.first == b.first; };
    std::vector<std::string> rivals;
    for (const auto& [module, parts] : unread_) {
      const bool within = ParentOf(module) == parent && !taken_.contains(module);
      if (within && std::ranges::equal(parts, group.parts, same_names)) rivals.push_back(module);
    }
    return rivals;
  }

  // The innermost module around a reader that has such modules, or else the module that the group's is in. The last
  // norm of one block may have been merged with the first of the next.
  std::string FindParent(const Group& group, const WeightReader& reader) const {
    for (std::string_view module = reader.node->fx->module; !module.empty(); module = ParentOf(module)) {
      if (!ListRivals(group, module).empty()) return std::string(module);
    }
    return std::string(ListRivals(group, "").empty() ? ParentOf(group.module) : "");
  }

  // The readers of the group's last value whose own fx node has an argument like it that no node makes. Where one has
  // the group's value as well, as a concatenation of both, the order of the arguments tells its inputs apart.
  Readers FindReaders(const Group& group) {
    const std::string& value = graph_.nodes[group.nodes.back()].outputs[0];
    const auto is_other = [&](const std::string& arg) {
      return arg != group.fx->name && StripNumber(arg) == StripNumber(group.fx->name) && !groups_.contains(arg);
    };
    Readers readers;
    for (ParsedNode& node : graph_.nodes) {
      if (node.fx == nullptr || node.fx == group.fx) continue;
      const std::vector<std::string>& args = node.fx->args;
      const auto other = std::ranges::find_if(args, is_other);
      const bool both = std::ranges::count(args, group.fx->name) > 0;
      if (other == args.end() || (both && args.size() != node.inputs.size())) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == value && (!both || is_other(args[i])))
          readers[both ? args[i] : *other].push_back({.node = &node, .input = i});
      }
    }
    return readers;
  }

  // The parameters of the group's own module that no fx node reads, if the group has one of them alone: a fresh model
  // may have two tokens of zeros.
  std::vector<std::string> ListSiblings(const Group& group) const {
    std::vector<std::string> parts;
    const auto module = unread_.find(group.module);
    if (group.parts.size() != 1 || module == unread_.end() || taken_.contains(group.module)) return parts;
    for (const auto& [part, placeholder] : module->second) parts.push_back(part);
    return parts;
  }

  void Separate(const Group& group) {
    const bool plain = std::ranges::all_of(
        group.nodes, [&](size_t i) { return graph_.nodes[i].outputs.size() == 1 && graph_.nodes[i].graphs.empty(); });
    if (!plain) return;
    const Readers readers = FindReaders(group);
    if (const std::vector<std::string> siblings = ListSiblings(group); siblings.size() == readers.size()) {
      for (auto [reader, sibling] = std::pair(readers.begin(), siblings.begin()); reader != readers.end();
           ++reader, ++sibling)
        Copy(group, reader->first, group.module, {{group.parts.begin()->first, *sibling}}, reader->second);
      return;
    }
    std::map<std::string, std::vector<std::string>> by_parent;  // fx nodes
    for (const auto& [name, own] : readers) by_parent[FindParent(group, own.front())].push_back(name);
    for (const auto& [parent, names] : by_parent) {
      const std::vector<std::string> rivals = ListRivals(group, parent);
      for (size_t i = 0; i < names.size() && names.size() == rivals.size(); ++i)  // numbered in one order
        Copy(group, names[i], rivals[i], {}, readers.at(names[i]));
    }
  }

  // `renamed`: the parts that are called otherwise in the module.
  void Copy(const Group& group, const std::string& fx_name, const std::string& module,
            const std::map<std::string, std::string>& renamed, const std::vector<WeightReader>& readers) {
    taken_.insert(module);
    auto fx = std::make_shared<FxNode>(*group.fx);
    fx->name = fx_name;
    fx->module = module;
    for (const auto& [part, placeholder] : group.parts) {
      const auto own = renamed.find(part);
      std::ranges::replace(fx->args, placeholder, unread_.at(module).at(own == renamed.end() ? part : own->second));
    }
    const std::string label = renamed.empty() ? module : StrCat(module, ".", renamed.begin()->second);
    SplitNodes split;
    for (const size_t i : group.nodes) {
      ParsedNode copy = graph_.nodes[i];
      split.outputs.emplace_back(copy.outputs[0], copies_.NameOutput(copy.outputs[0], label));
      copy.source = StrCat(copy.source, "/", label);
      copy.fx = fx;
      copy.outputs[0] = split.outputs.back().second;
      for (const auto& [old, own] : split.outputs) std::ranges::replace(copy.inputs, old, own);
      copies_.Add(group.nodes.back(), std::move(copy));
    }
    for (const WeightReader& reader : readers) {
      split.readers.push_back({.node = reader.node->outputs[0], .input = reader.input});
      reader.node->inputs[reader.input] = split.outputs.back().second;
    }
    graph_.shared.nodes.push_back(std::move(split));
  }

  const TorchMetadata& metadata_;
  ParsedGraph& graph_;
  std::map<std::string, Group> groups_;            // by fx node
  std::map<std::string, Parts, ByNumber> unread_;  // parameters that no fx node reads, by module
  std::set<std::string> taken_;                    // modules that have got a copy
  CopiedNodes copies_;
};

}  // namespace

void SplitMergedNodes(const TorchMetadata& metadata, ParsedGraph* graph) { Separator(metadata, graph).Run(); }

}  // namespace onnxtrain
