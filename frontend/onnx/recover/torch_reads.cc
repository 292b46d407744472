#include "frontend/onnx/recover/torch_reads.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/rows.h"

namespace onnxtrain {

const std::string* TorchReads::Identity(const std::string& weight) const {
  const auto it = identity.find(weight);
  return it == identity.end() ? nullptr : &it->second;
}

bool TorchReads::IsParameter(const std::string& name) const {
  const auto it = placeholder_of.find(name);
  return it != placeholder_of.end() && Entry(it->second).kind == SignatureEntry::Kind::kParameter;
}

std::vector<std::string> TorchReads::WithoutParameters(std::vector<std::string> names) const {
  std::erase_if(names, [this](const std::string& name) { return IsParameter(name); });
  return names;
}

bool TorchReads::IsMadeOfSeveral(const std::string& weight) const {
  const auto it = folded_from.find(weight);
  return it != folded_from.end() && it->second.size() > 1;
}

namespace {

constexpr size_t kMaxArgs = 1000;  // limit for one fx node; recurrent layers have four for each layer and direction

// The nodes that were translated from one fx node.
struct FxGroup {
  const FxNode* fx = nullptr;
  std::vector<TorchRead*> reads;  // reads of floating-point initializers
};

class ReadMatcher {
 public:
  explicit ReadMatcher(const WeightIndex& index) : metadata_(index.metadata()), graph_(index.graph()) {
    found_.metadata = &metadata_;
    for (const auto& [placeholder, entry] : metadata_.signature)
      found_.placeholder_of.emplace(entry.target, placeholder);
  }

  TorchReads Run() {
    ListReads();
    for (const auto& [name, reads] : found_.by_weight) Identify(name);
    for (auto& [name, group] : groups_) NotePositions(*group.fx);
    for (auto& [name, group] : groups_) MatchGroup(group);
    MatchByModule();
    MatchByElimination();
    MatchComputed();
    return std::move(found_);
  }

 private:
  void ListReads() {
    for (const ParsedValue& input : graph_.inputs) found_.known.insert(input.name);
    for (const ParsedNode& node : graph_.nodes) {
      if (node.fx != nullptr) found_.known.insert(node.fx->name);
      for (const std::string& output : node.outputs) {
        if (node.fx != nullptr) maker_[output] = node.fx->name;
      }
      if (std::ranges::all_of(node.outputs, &std::string::empty)) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto it = graph_.initializers.find(node.inputs[i]);
        if (it == graph_.initializers.end() || !IsFloat(it->second.dtype()) || ReadsShapeOnly(node)) continue;
        found_.all.push_back(
            std::make_unique<TorchRead>(TorchRead{.node = &node, .input = i, .weight = node.inputs[i]}));
        found_.by_weight[node.inputs[i]].push_back(found_.all.back().get());
        if (node.fx == nullptr) continue;
        FxGroup& group = groups_[node.fx->name];
        group.fx = node.fx.get();
        group.reads.push_back(found_.all.back().get());
      }
    }
  }

  // Finds the placeholder that an initializer is named after or was folded from.
  void Identify(const std::string& name) {
    const auto weight = metadata_.weights.find(name);
    if (weight != metadata_.weights.end() && metadata_.signature.contains(weight->second.placeholder)) {
      found_.identity[name] = weight->second.placeholder;
    } else if (const auto own = found_.placeholder_of.find(name); own != found_.placeholder_of.end()) {
      found_.identity[name] = own->second;
    } else if (weight != metadata_.weights.end() && !weight->second.folded_from.empty()) {
      IdentifyFolded(name, weight->second.folded_from);
    }
    if (const std::string* own = found_.Identity(name)) stored_.insert(*own);
  }

  void IdentifyFolded(const std::string& name, const std::vector<std::string>& sources) {
    std::vector<std::string> parameters;
    for (const std::string& source : sources) {
      if (found_.IsParameter(source)) parameters.push_back(found_.placeholder_of.at(source));
    }
    if (parameters.size() == 1) found_.identity[name] = parameters[0];
    if (parameters.empty()) found_.folded_constants.insert(name);
    if (!parameters.empty() && sources.size() > 1 && MayRepeat(name, found_.WithoutParameters(sources)))
      found_.looked_up.push_back(name);
    if (!parameters.empty()) found_.folded_from[name] = std::move(parameters);
  }

  void NotePositions(const FxNode& fx) {
    for (size_t i = 0; i < fx.args.size(); ++i) positions_.emplace(std::pair(fx.target, fx.args[i]), i);
  }

  static bool Take(const std::string& placeholder, TorchRead* read, std::vector<std::string>* args) {
    const auto it = std::ranges::find(*args, placeholder);
    if (it == args->end()) return false;
    read->placeholder = placeholder;
    args->erase(it);
    return true;
  }

  // Matches the initializers that the nodes of an fx node read to the parameters among its arguments.
  void MatchGroup(FxGroup& group) {
    std::vector<std::string> args;
    std::set<std::string> seen;
    for (const std::string& arg : group.fx->args) {
      if (metadata_.signature.contains(arg) && seen.insert(arg).second) args.push_back(arg);
    }
    if (args.empty() && CountComputedArgs(group) == 0) {
      for (TorchRead* read : group.reads) read->derived = true;
    }
    if (args.empty() || args.size() > kMaxArgs || group.reads.size() > kMaxArgs) return;
    std::vector<TorchRead*> open = TakeOwn(group, seen, &args);
    std::erase_if(args, [&](const std::string& arg) { return stored_.contains(arg); });
    MatchByPosition(*group.fx, &open, &args);
    MatchByName(&open, &args);
    MatchByRole(&open, &args);
    if (open.size() == args.size()) {
      for (size_t i = 0; i < open.size(); ++i) open[i]->placeholder = args[i];
    } else if (args.empty()) {
      for (TorchRead* read : open) read->derived = !IsFoldedArgument(*read);
    }
  }

  // Counts arguments of an fx node, except parameters, that no node of the file computes. Subtracts operands that its
  // nodes read in place of such an argument because a node between them was removed.
  int64_t CountComputedArgs(const FxGroup& group) const {
    const std::set<std::string> args(group.fx->args.begin(), group.fx->args.end());
    std::set<std::string> operands;
    for (const TorchRead* read : group.reads) operands.insert(read->node->inputs.begin(), read->node->inputs.end());
    const auto is_argument = [&](const std::string& operand) {
      const auto maker = maker_.find(operand);
      return args.contains(maker == maker_.end() ? operand : maker->second);
    };
    const auto in_place = std::ranges::count_if(operands, [&](const std::string& operand) {
      const bool own = maker_.contains(operand) && maker_.at(operand) == group.fx->name;
      return !operand.empty() && !own && !graph_.initializers.contains(operand) && !is_argument(operand);
    });
    const auto unknown = std::ranges::count_if(args, [&](const std::string& arg) {
      return !found_.known.contains(arg) && !metadata_.signature.contains(arg);
    });
    return std::max<int64_t>(0, unknown - in_place);
  }

  // Returns true if the operator that computed the initializer also computed a folded argument of the fx node: "exp_2"
  // and "exp".
  bool IsFoldedArgument(const TorchRead& read) const {
    if (!found_.folded_from.contains(read.weight) || IsExporterName(read.weight)) return false;
    const std::string_view op = StripNumber(read.weight);
    return std::ranges::any_of(read.node->fx->args, [&](const std::string& arg) { return StripNumber(arg) == op; });
  }

  // Matches the reads whose initializer is named after an argument. Returns the others that may be arguments.
  std::vector<TorchRead*> TakeOwn(FxGroup& group, const std::set<std::string>& all, std::vector<std::string>* args) {
    std::vector<TorchRead*> open;
    std::set<std::pair<const ParsedNode*, std::string>> taken;
    // A statistic may be merged with a scale that the program does not have: operators take statistics last.
    std::stable_partition(group.reads.begin(), group.reads.end(),
                          [&](const TorchRead* read) { return !IsBufferReadLater(*read, group); });
    for (TorchRead* read : group.reads) {
      const std::string* own = found_.Identity(read->weight);
      if (own != nullptr && Take(*own, read, args)) {
        taken.emplace(read->node, read->weight);
      } else if (own != nullptr && all.contains(*own) && !taken.contains({read->node, read->weight})) {
        read->placeholder = *own;  // several nodes read the same argument
      } else if (own != nullptr && found_.by_weight[read->weight].size() == 1) {
        continue;  // batch normalization was folded into it
      } else if (!found_.folded_constants.contains(read->weight) && !found_.IsMadeOfSeveral(read->weight)) {
        open.push_back(read);
      }
    }
    return open;
  }

  // Returns true if a later input of the node reads the same buffer.
  bool IsBufferReadLater(const TorchRead& read, const FxGroup& group) const {
    const std::string* own = found_.Identity(read.weight);
    if (own == nullptr || found_.Entry(*own).kind != SignatureEntry::Kind::kBuffer) return false;
    return std::ranges::any_of(group.reads, [&](const TorchRead* other) {
      return other->node == read.node && other->weight == read.weight && other->input > read.input;
    });
  }

  // Matches reads at the position where other fx nodes of the operator read the initializer under its own name.
  void MatchByPosition(const FxNode& fx, std::vector<TorchRead*>* open, std::vector<std::string>* args) {
    std::erase_if(*open, [&](TorchRead* read) {
      const std::string* own = found_.Identity(read->weight);
      const auto at = own == nullptr ? positions_.end() : positions_.find({fx.target, *own});
      return at != positions_.end() && at->second < fx.args.size() && Take(fx.args[at->second], read, args);
    });
  }

  // Matches a "weight" to the only "weight" among the arguments.
  void MatchByName(std::vector<TorchRead*>* open, std::vector<std::string>* args) {
    const auto part = [&](const std::string& placeholder) { return LastPart(found_.Entry(placeholder).target); };
    const auto read_part = [&](const TorchRead* read) {
      const std::string* own = found_.Identity(read->weight);
      return own == nullptr ? std::string_view() : part(*own);
    };
    std::erase_if(*open, [&](TorchRead* read) {
      const std::string_view name = read_part(read);
      const auto same = [&](const std::string& arg) { return part(arg) == name; };
      const auto rivals = std::ranges::count_if(*open, [&](const TorchRead* r) { return read_part(r) == name; });
      if (name.empty() || rivals != 1 || std::ranges::count_if(*args, same) != 1) return false;
      return Take(*std::ranges::find_if(*args, same), read, args);
    });
  }

  // If there are more reads than arguments, matches the only Mul with the weight and the only Add with the bias. A norm
  // of several nodes also reads constants that were merged with other parameters.
  void MatchByRole(std::vector<TorchRead*>* open, std::vector<std::string>* args) {
    if (open->size() <= args->size()) return;
    for (const auto& role : {std::pair("weight", "Mul"), std::pair("bias", "Add")}) {
      const auto is_arg = [&](const std::string& arg) { return LastPart(found_.Entry(arg).target) == role.first; };
      const auto is_read = [&](const TorchRead* r) {
        return r->node->domain.empty() && r->node->op_type == role.second;
      };
      if (std::ranges::count_if(*args, is_arg) != 1 || std::ranges::count_if(*open, is_read) != 1) continue;
      const auto read = std::ranges::find_if(*open, is_read);
      Take(*std::ranges::find_if(*args, is_arg), *read, args);
      open->erase(read);
    }
  }

  // Matches expressions of a module's own parameter, such as 1 + weight, that were merged with another one, perhaps of
  // another module, so that the fx node names neither. The parameter has the same name in the module, and no
  // initializer stores it; or, if another expression has taken that one, it is the module's only one of another name.
  void MatchByModule() {
    std::set<std::string> matched = stored_;
    std::map<std::pair<std::string, std::string>, std::string> taken;  // placeholders, by module and argument
    for (const auto& read : found_.all) matched.insert(read->placeholder);
    for (const auto& read : found_.all) {
      const std::string* own = found_.Identity(read->weight);
      if (own == nullptr || !found_.folded_from.contains(read->weight) || !read->placeholder.empty() || read->derived)
        continue;
      const FxNode* fx = read->node->fx.get();
      if (fx == nullptr) continue;
      if (read->placeholder = FindOtherRole(*read, *own, matched); !read->placeholder.empty()) continue;
      if (std::ranges::count(fx->args, read->weight) > 0) continue;
      const auto [it, first] = taken.try_emplace({fx->module, UnknownArgs(*fx)});
      if (first) {
        it->second = FindRival(*read, found_.Entry(*own).target, matched);
        if (!it->second.empty()) matched.insert(it->second);
      }
      read->placeholder = it->second;
    }
  }

  // Returns the arguments that nothing in the file computes or stores.
  std::string UnknownArgs(const FxNode& fx) const {
    std::string unknown;
    for (const std::string& arg : fx.args) {
      if (!found_.known.contains(arg) && !metadata_.signature.contains(arg)) StrAppend(&unknown, arg, " ");
    }
    return unknown;
  }

  std::string FindRival(const TorchRead& read, std::string_view target, const std::set<std::string>& matched) const {
    const std::string& module = read.node->fx->module;
    const auto rival = found_.placeholder_of.find(StrCat(module, ".", NameInModule(read.weight, target)));
    if (rival == found_.placeholder_of.end()) return "";
    if (!matched.contains(rival->second)) return rival->second;
    std::vector<std::string> others;
    for (const std::string& other : ListOwnParameters(module)) {
      if (!matched.contains(found_.placeholder_of.at(other))) others.push_back(found_.placeholder_of.at(other));
    }
    return others.size() == 1 ? others[0] : "";
  }

  // Returns the name of a parameter in the module whose fx node reads the initializer folded from it: "qkv.bias".
  std::string_view NameInModule(const std::string& weight, std::string_view target) const {
    for (const TorchRead* read : found_.by_weight.at(weight)) {
      const FxNode* fx = read->node->fx.get();
      if (fx == nullptr || std::ranges::count(fx->args, weight) == 0 || fx->module.empty()) continue;
      if (target.starts_with(fx->module + ".")) return target.substr(fx->module.size() + 1);
    }
    return LastPart(target);
  }

  // Separates two equal parameters of a module, a scale and a bias or two tokens, that one fx node reads from one
  // folded initializer. Returns the placeholder of the parameter that the initializer is not named after, if the read
  // refers to it: the only unmatched parameter of this role in the module. Else returns "".
  std::string FindOtherRole(const TorchRead& read, const std::string& own, const std::set<std::string>& matched) const {
    const FxNode& fx = *read.node->fx;
    std::vector<const TorchRead*> reads;
    for (const TorchRead* r : groups_.at(fx.name).reads) {
      if (r->weight == read.weight) reads.push_back(r);
    }
    if (reads.size() != 2 || std::ranges::count(fx.args, read.weight) > 1) return "";
    const auto adds = [](const TorchRead& r) { return r.node->domain.empty() && r.node->op_type == "Add"; };
    const auto is_bias = [&](const std::string& target) { return LastPart(target) == "bias"; };
    const bool by_role = adds(*reads[0]) != adds(*reads[1]);
    if (by_role ? is_bias(found_.Entry(own).target) == adds(read) : reads[0] == &read) return "";
    std::vector<std::string> candidates;
    for (const std::string& target : ListOwnParameters(fx.module)) {
      const std::string& placeholder = found_.placeholder_of.at(target);
      const bool fits =
          by_role ? is_bias(target) == adds(read) : LastPart(target) != LastPart(found_.Entry(own).target);
      if (fits && !matched.contains(placeholder)) candidates.push_back(placeholder);
    }
    return candidates.size() == 1 ? candidates[0] : "";
  }

  // Lists the parameters of a module, without those of its submodules.
  std::vector<std::string> ListOwnParameters(const std::string& module) const {
    const std::string prefix = module + ".";
    std::vector<std::string> targets;
    for (auto it = found_.placeholder_of.lower_bound(prefix);
         it != found_.placeholder_of.end() && it->first.starts_with(prefix); ++it) {
      const bool inner = it->first.find('.', prefix.size()) != std::string::npos;
      if (!inner && found_.Entry(it->second).kind == SignatureEntry::Kind::kParameter) targets.push_back(it->first);
    }
    return targets;
  }

  // Matches a node without fx node whose initializer is named after a parameter that others read. If it is the only
  // such node, it reads the only unmatched parameter of the same name.
  void MatchByElimination() {
    std::set<std::string> matched = stored_;
    std::map<std::string, std::vector<TorchRead*>, std::less<>>
        open;  // by the last part of the initializer's parameter
    for (const auto& read : found_.all) {
      matched.insert(read->placeholder);
      const std::string* own = found_.Identity(read->weight);
      const bool elsewhere = std::ranges::any_of(found_.by_weight[read->weight],
                                                 [](const TorchRead* r) { return r->node->fx != nullptr; });
      if (read->node->fx == nullptr && own != nullptr && elsewhere)
        open[std::string(LastPart(found_.Entry(*own).target))].push_back(read.get());
    }
    std::map<std::string, std::vector<std::string>, std::less<>> missing;
    for (const auto& [placeholder, entry] : metadata_.signature) {
      if (entry.kind == SignatureEntry::Kind::kParameter && !matched.contains(placeholder))
        missing[std::string(LastPart(entry.target))].push_back(placeholder);
    }
    for (auto& [part, reads] : open) {
      const auto found = missing.find(part);
      if (reads.size() == 1 && found != missing.end() && found->second.size() == 1)
        reads[0]->placeholder = found->second[0];
    }
  }

  // Matches initializers of equal numbers that replace a computed argument, such as 1 + weight of a fresh norm. They
  // were computed from the only unmatched parameter of the reader's module and merged with others.
  void MatchComputed() {
    std::set<std::string> matched = stored_;
    for (const auto& read : found_.all) matched.insert(read->placeholder);
    for (const ParsedNode& node : graph_.nodes) {
      if (node.fx != nullptr) matched.insert(node.fx->args.begin(), node.fx->args.end());
    }
    std::map<std::string, std::vector<TorchRead*>> candidates;  // by placeholder
    for (const auto& read : found_.all) {
      const HostTensor& value = graph_.initializers.at(read->weight);
      const bool open = read->placeholder.empty() && !read->derived;
      if (!open || read->node->fx == nullptr || value.size() == 1 || !IsSplat(value)) continue;
      std::vector<std::string> unread;
      for (const std::string& target : ListOwnParameters(read->node->fx->module)) {
        if (!matched.contains(found_.placeholder_of.at(target))) unread.push_back(found_.placeholder_of.at(target));
      }
      if (unread.size() == 1 && CountComputedArgs(groups_.at(read->node->fx->name)) == 1)
        candidates[unread[0]].push_back(read.get());
    }
    for (const auto& [placeholder, reads] : candidates) {
      if (reads.size() != 1) continue;
      reads[0]->placeholder = placeholder;
      found_.computed.push_back(reads[0]);
    }
  }

  const TorchMetadata& metadata_;
  const ParsedGraph& graph_;
  TorchReads found_;
  std::set<std::string> stored_;                                     // placeholders that initializers are named after
  std::map<std::string, std::string> maker_;                         // fx node, by the value that its nodes produce
  std::map<std::string, FxGroup> groups_;                            // by fx node
  std::map<std::pair<std::string, std::string>, size_t> positions_;  // argument index, by operator and placeholder
};

}  // namespace

TorchReads MatchTorchReads(const WeightIndex& index) { return ReadMatcher(index).Run(); }

}  // namespace onnxtrain
