#include "frontend/onnx/recover/merged_nodes.h"

#include <algorithm>
#include <map>
#include <set>

#include "frontend/base/strings.h"
#include "frontend/onnx/recover/copied_nodes.h"
#include "frontend/onnx/recover/fx_names.h"
#include "frontend/onnx/recover/module_path.h"

namespace onnxtrain {
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
