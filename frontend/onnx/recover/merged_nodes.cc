#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_index.h"

namespace onnxtrain {
namespace {

// Names the outputs of copies.
class OutputNames {
 public:
  explicit OutputNames(const WeightIndex& index) : index_(index) {}

  // Returns OUTPUT/MODULE, with a number where the graph has a value of that name.
  std::string Name(std::string_view output, std::string_view module) {
    const std::string name = StrCat(output, "/", module);
    std::string own = name;
    for (int i = 2; index_.IsNameTaken(own) || !taken_.insert(own).second; ++i) own = StrCat(name, "_", i);
    return own;
  }

 private:
  const WeightIndex& index_;
  std::set<std::string> taken_;
};

WeightRecord MakeCopies(const SplitNodes& split, std::string why) {
  return {.weight = split.outputs.back().second, .why = std::move(why), .form = split};
}

// Returns the placeholders of the parameters that no fx node reads, by the parameters' names.
std::map<std::string, std::string> FindUnreadParameters(const WeightIndex& index) {
  std::set<std::string_view> args;
  for (const ParsedNode& node : index.graph().nodes) {
    if (node.fx != nullptr) args.insert(node.fx->args.begin(), node.fx->args.end());
  }
  std::map<std::string, std::string> unread;
  for (const auto& [placeholder, entry] : index.metadata().signature) {
    if (entry.kind == SignatureEntry::Kind::kParameter && !args.contains(placeholder))
      unread.emplace(entry.target, placeholder);
  }
  return unread;
}

using Readers = std::map<std::string, std::vector<WeightReader>, ByNumber>;  // by module

class PartSeparator {
 public:
  explicit PartSeparator(const WeightIndex& index)
      : index_(index), unread_(FindUnreadParameters(index)), names_(index) {}

  WeightRecords Run() {
    for (const ParsedNode& node : index_.graph().nodes) {
      if (!unread_.empty() && TakesApart(node)) Separate(node);
    }
    return std::move(records_);
  }

 private:
  bool TakesApart(const ParsedNode& node) const {
    if (!node.domain.empty() || node.op_type != "Split" || node.fx != nullptr || node.inputs.empty()) return false;
    const HostTensor* stored = index_.FindTensor(node.inputs[0]);
    return stored != nullptr && IsSplat(*stored) &&
           std::ranges::none_of(node.outputs, [&](const auto& o) { return o.empty() || index_.IsOutput(o); });
  }

  // Returns the readers of the outputs by module; empty if one belongs to no module.
  Readers FindReaders(const ParsedNode& split) const {
    Readers by_module;
    for (const std::string& output : split.outputs) {
      for (const WeightReader& reader : index_.Readers(output)) {
        const ParsedNode& node = *reader.node;
        const bool known = node.fx != nullptr && !node.fx->module.empty();
        if (!known || node.outputs.empty() || node.outputs[0].empty()) return {};
        by_module[node.fx->module].push_back(reader);
      }
    }
    return by_module;
  }

  void Separate(const ParsedNode& split) {
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
      const std::string why = StrCat("'", module, "' reads parts of its own parameter, which the exporter merged");
      if (parameter->first == weight || std::exchange(free, false)) {
        records_.push_back({.weight = weight, .why = why, .form = NamedNode{.node = split.outputs[0], .fx = fx}});
      } else {
        Copy(split, fx, own, why);
      }
    }
  }

  void Copy(const ParsedNode& node, const std::shared_ptr<const FxNode>& fx, const std::vector<WeightReader>& readers,
            const std::string& why) {
    SplitNodes split{.fx = fx};
    for (const std::string& output : node.outputs) split.outputs.emplace_back(output, names_.Name(output, fx->module));
    for (const WeightReader& reader : readers)
      split.readers.push_back({.node = reader.node->outputs[0], .input = reader.input});
    records_.push_back(MakeCopies(split, why));
  }

  const WeightIndex& index_;
  std::map<std::string, std::string> unread_;  // placeholders of parameters that no fx node reads, by name
  OutputNames names_;
  WeightRecords records_;
};

}  // namespace

absl::StatusOr<WeightRecords> MatchMergedParts(WeightIndex* index) { return PartSeparator(*index).Run(); }

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
  explicit Separator(const WeightIndex& index) : index_(index), graph_(index.graph()), names_(index) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) AddNode(i);
    for (const auto& [parameter, placeholder] : FindUnreadParameters(index)) {
      if (!graph_.initializers.contains(parameter))
        unread_[std::string(ParentOf(parameter))].emplace(LastPart(parameter), placeholder);
    }
  }

  WeightRecords Run() {
    for (auto& [name, group] : groups_) {
      if (!unread_.empty() && FindParameters(&group)) Separate(group);
    }
    return std::move(records_);
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
      const auto entry = index_.metadata().signature.find(arg);
      if (entry == index_.metadata().signature.end() || entry->second.kind != SignatureEntry::Kind::kParameter)
        continue;
      const std::string_view module = ParentOf(entry->second.target);
      if (!group->parts.empty() && module != group->module) return false;
      group->module = module;
      group->parts.emplace(LastPart(entry->second.target), arg);
    }
    return !group->parts.empty();
  }

  // Lists modules in `parent` with parameters of the group's names that no fx node reads.
  std::vector<std::string> ListRivals(const Group& group, std::string_view parent) const {
    const auto same_names = [](const auto& a, const auto& b) { return a.first == b.first; };
    std::vector<std::string> rivals;
    for (const auto& [module, parts] : unread_) {
      const bool within = ParentOf(module) == parent && !taken_.contains(module);
      if (within && std::ranges::equal(parts, group.parts, same_names)) rivals.push_back(module);
    }
    return rivals;
  }

  // Returns the innermost module around the reader that contains such modules, or else the parent of the group's
  // module. The last norm of one block may have been merged with the first of the next.
  std::string FindParent(const Group& group, const WeightReader& reader) const {
    for (std::string_view module = reader.node->fx->module; !module.empty(); module = ParentOf(module)) {
      if (!ListRivals(group, module).empty()) return std::string(module);
    }
    return std::string(ListRivals(group, "").empty() ? ParentOf(group.module) : "");
  }

  // Returns the readers of the group's last value whose fx node has a similar argument that no node produces. If the fx
  // node has both as arguments, as a concatenation of them, the order of the arguments assigns the inputs.
  Readers FindReaders(const Group& group) {
    const std::string& value = graph_.nodes[group.nodes.back()].outputs[0];
    const auto is_other = [&](const std::string& arg) {
      return arg != group.fx->name && StripNumber(arg) == StripNumber(group.fx->name) && !groups_.contains(arg);
    };
    Readers readers;
    for (const WeightReader& reader : index_.Readers(value)) {
      const ParsedNode& node = *reader.node;
      if (node.fx == nullptr || node.fx == group.fx) continue;
      const std::vector<std::string>& args = node.fx->args;
      const auto other = std::ranges::find_if(args, is_other);
      const bool both = std::ranges::count(args, group.fx->name) > 0;
      if (other == args.end() || (both && args.size() != node.inputs.size())) continue;
      if (!both || is_other(args[reader.input])) readers[both ? args[reader.input] : *other].push_back(reader);
    }
    return readers;
  }

  // Returns the parameters of the group's module that no fx node reads, if the group has exactly one parameter: a fresh
  // model may have two tokens of zeros.
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
      for (size_t i = 0; i < names.size() && names.size() == rivals.size(); ++i)  // both are numbered in the same order
        Copy(group, names[i], rivals[i], {}, readers.at(names[i]));
    }
  }

  // `renamed` maps parts to their names in the module, where these differ.
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
    SplitNodes split{.fx = std::move(fx)};
    for (const size_t i : group.nodes) {
      const std::string& output = graph_.nodes[i].outputs[0];
      split.outputs.emplace_back(output, names_.Name(output, label));
    }
    for (const WeightReader& reader : readers)
      split.readers.push_back({.node = reader.node->outputs[0], .input = reader.input});
    records_.push_back(MakeCopies(split, StrCat("'", label, "' has weights of its own, which the exporter merged")));
  }

  const WeightIndex& index_;
  const ParsedGraph& graph_;
  std::map<std::string, Group> groups_;            // by fx node
  std::map<std::string, Parts, ByNumber> unread_;  // parameters that no fx node reads, by module
  std::set<std::string> taken_;                    // modules that have a copy
  OutputNames names_;
  WeightRecords records_;
};

}  // namespace

absl::StatusOr<WeightRecords> MatchMergedNodes(WeightIndex* index) { return Separator(*index).Run(); }

// Inserts the copies after the last of the nodes.
void BuildMergedNodes(const WeightRecord& record, WeightIndex* index) {
  if (const auto* named = std::get_if<NamedNode>(&record.form)) {
    index->Producer(named->node)->fx = named->fx;
    return;
  }
  const auto& split = std::get<SplitNodes>(record.form);
  std::map<size_t, ParsedNode> made;  // a node of several outputs has one copy
  for (const auto& [output, own] : split.outputs) {
    const ParsedNode& node = *index->Producer(output);
    const auto [copy, first] = made.try_emplace(static_cast<size_t>(&node - index->graph().nodes.data()), node);
    if (first) copy->second.source += own.substr(output.size());
  }
  for (auto& [position, copy] : made) {
    copy.fx = split.fx;
    for (const auto& [output, own] : split.outputs) {
      std::ranges::replace(copy.inputs, output, own);
      std::ranges::replace(copy.outputs, output, own);
    }
    index->copies[made.rbegin()->first].push_back(std::move(copy));
  }
  for (const FileReader& reader : split.readers) {
    std::string& input = index->Producer(reader.node)->inputs[reader.input];
    const auto copied = std::ranges::find(split.outputs, input, &std::pair<std::string, std::string>::first);
    if (copied != split.outputs.end()) input = copied->second;
  }
}

absl::Status WriteMergedNodes(const WeightRecord& record, StoredWeights* weights) {
  const auto* split = std::get_if<SplitNodes>(&record.form);
  if (split != nullptr) weights->nodes.insert(weights->nodes.begin(), *split);
  return absl::OkStatus();
}

}  // namespace onnxtrain
