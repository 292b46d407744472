#include "frontend/onnx/recover/weight_index.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/rows.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

constexpr size_t kMaxArgs = 1000;  // limit for one fx node; recurrent layers have four for each layer and direction

Kind OriginKind(SignatureEntry::Kind kind) {
  switch (kind) {
    case SignatureEntry::Kind::kParameter:
      return Kind::kParameter;
    case SignatureEntry::Kind::kBuffer:
      return Kind::kBuffer;
    case SignatureEntry::Kind::kConstant:
      break;
  }
  return Kind::kConstant;
}

std::string WithoutDigits(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return name;
}

// Returns the name before the suffix of ONNX Runtime's MatMulNBitsQuantizer: "val_3" of "val_3_Q4" and "val_3_DQ_Q4".
// "" without a suffix.
std::string NameBeforeQuantization(const std::string& name) {
  const size_t at = name.rfind("_Q");
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (at == std::string::npos || at + 2 == name.size() || !std::all_of(name.begin() + at + 2, name.end(), is_digit))
    return "";
  const std::string stem = name.substr(0, at);
  return stem.ends_with("_DQ") ? stem.substr(0, stem.size() - 3) : stem;
}

// Returns the length of the bias that a product or convolution with this weight takes; 0 for other nodes.
int64_t CountBiasChannels(const ParsedNode& node, const HostTensor& weight) {
  const Shape& shape = weight.shape();
  int64_t channels = 0;
  if (shape.size() < 2 || !node.domain.empty()) return 0;
  const int64_t last = node.op_type == "Gemm" && node.attrs.Int("transB") == 0 ? 1 : 0;
  if (node.op_type == "Gemm" && node.attrs.Float("beta", 1) == 1) channels = shape[last];
  if (node.op_type == "Conv") channels = shape[0];
  if (node.op_type == "ConvTranspose" && node.attrs.Int("group", 1) == 1) channels = shape[1];
  return channels <= weight.size() ? channels : 0;
}

// Returns true for linear(input, weight, bias) and convolutions, whose third argument is a bias of any name.
bool TakesBiasThird(const FxNode& fx) {
  return fx.args.size() == 3 &&
         (fx.target.starts_with("torch.ops.aten.linear.") || fx.target.starts_with("torch.ops.aten.conv"));
}

// One input of a node that is an initializer.
struct Read {
  const ParsedNode* node = nullptr;
  size_t input = 0;
  std::string weight;
  std::string placeholder;  // the parameter that it reads; "": not known
  bool derived = false;     // it reads a constant that was merged with a parameter
};

// The nodes that were translated from one fx node.
struct FxGroup {
  const FxNode* fx = nullptr;
  std::vector<Read*> reads;  // reads of floating-point initializers
};

class TorchNamer {
 public:
  explicit TorchNamer(const WeightIndex& index) : metadata_(index.metadata()), graph_(index.graph()), splitter_(index) {
    for (const auto& [placeholder, entry] : metadata_.signature) placeholder_of_.emplace(entry.target, placeholder);
  }

  TorchNaming Run() {
    ListReads();
    for (const auto& [name, reads] : reads_of_) Identify(name);
    for (auto& [name, group] : groups_) NotePositions(*group.fx);
    for (auto& [name, group] : groups_) MatchGroup(group);
    MatchByModule();
    MatchByElimination();
    MatchComputed();
    for (const std::string& name : std::vector(graph_.initializer_order)) Decide(name);
    const std::set<std::string> held = HeldParameters();
    RestoreBiases(held);
    ListMissing(held);
    ListFolded();
    NameQuantized();
    ListOrigins();
    return std::move(findings_);
  }

 private:
  const SignatureEntry& Entry(const std::string& placeholder) const { return metadata_.signature.at(placeholder); }

  void ListReads() {
    for (const ParsedValue& input : graph_.inputs) known_.insert(input.name);
    for (const ParsedNode& node : graph_.nodes) {
      if (node.fx != nullptr) known_.insert(node.fx->name);
      for (const std::string& output : node.outputs) {
        if (node.fx != nullptr) maker_[output] = node.fx->name;
      }
      if (std::ranges::all_of(node.outputs, &std::string::empty)) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto it = graph_.initializers.find(node.inputs[i]);
        if (it == graph_.initializers.end() || !IsFloat(it->second.dtype()) || ReadsShapeOnly(node)) continue;
        all_reads_.push_back(std::make_unique<Read>(Read{.node = &node, .input = i, .weight = node.inputs[i]}));
        reads_of_[node.inputs[i]].push_back(all_reads_.back().get());
        if (node.fx == nullptr) continue;
        FxGroup& group = groups_[node.fx->name];
        group.fx = node.fx.get();
        group.reads.push_back(all_reads_.back().get());
      }
    }
  }

  // Finds the placeholder that an initializer is named after or was folded from.
  void Identify(const std::string& name) {
    const auto weight = metadata_.weights.find(name);
    if (weight != metadata_.weights.end() && metadata_.signature.contains(weight->second.placeholder)) {
      identity_[name] = weight->second.placeholder;
    } else if (const auto own = placeholder_of_.find(name); own != placeholder_of_.end()) {
      identity_[name] = own->second;
    } else if (weight != metadata_.weights.end() && !weight->second.folded_from.empty()) {
      IdentifyFolded(name, weight->second.folded_from);
    }
    if (const std::string* own = Identity(name)) stored_.insert(*own);
  }

  void IdentifyFolded(const std::string& name, const std::vector<std::string>& sources) {
    std::vector<std::string> parameters;
    for (const std::string& source : sources) {
      if (IsParameter(source)) parameters.push_back(placeholder_of_.at(source));
    }
    if (parameters.size() == 1) identity_[name] = parameters[0];
    origins_[name].kind = parameters.empty() ? Kind::kConstant : Kind::kParameter;
    if (!parameters.empty() && sources.size() > 1 && MayRepeat(name, WithoutParameters(sources)))
      findings_.looked_up.push_back(name);
    if (!parameters.empty()) folded_from_[name] = std::move(parameters);
  }

  bool IsParameter(const std::string& source) const {
    const auto it = placeholder_of_.find(source);
    return it != placeholder_of_.end() && Entry(it->second).kind == SignatureEntry::Kind::kParameter;
  }

  std::vector<std::string> WithoutParameters(std::vector<std::string> sources) const {
    std::erase_if(sources, [this](const std::string& source) { return IsParameter(source); });
    return sources;
  }

  const std::string* Identity(const std::string& weight) const {
    const auto it = identity_.find(weight);
    return it == identity_.end() ? nullptr : &it->second;
  }

  void NotePositions(const FxNode& fx) {
    for (size_t i = 0; i < fx.args.size(); ++i) positions_.emplace(std::pair(fx.target, fx.args[i]), i);
  }

  static bool Take(const std::string& placeholder, Read* read, std::vector<std::string>* args) {
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
      for (Read* read : group.reads) read->derived = true;
    }
    if (args.empty() || args.size() > kMaxArgs || group.reads.size() > kMaxArgs) return;
    std::vector<Read*> open = TakeOwn(group, seen, &args);
    std::erase_if(args, [&](const std::string& arg) { return stored_.contains(arg); });
    MatchByPosition(*group.fx, &open, &args);
    MatchByName(&open, &args);
    MatchByRole(&open, &args);
    if (open.size() == args.size()) {
      for (size_t i = 0; i < open.size(); ++i) open[i]->placeholder = args[i];
    } else if (args.empty()) {
      for (Read* read : open) read->derived = !IsFoldedArgument(*read);
    }
  }

  // Counts arguments of an fx node, except parameters, that no node of the file computes. Subtracts operands that its
  // nodes read in place of such an argument because a node between them was removed.
  int64_t CountComputedArgs(const FxGroup& group) const {
    const std::set<std::string> args(group.fx->args.begin(), group.fx->args.end());
    std::set<std::string> operands;
    for (const Read* read : group.reads) operands.insert(read->node->inputs.begin(), read->node->inputs.end());
    const auto is_argument = [&](const std::string& operand) {
      const auto maker = maker_.find(operand);
      return args.contains(maker == maker_.end() ? operand : maker->second);
    };
    const auto in_place = std::ranges::count_if(operands, [&](const std::string& operand) {
      const bool own = maker_.contains(operand) && maker_.at(operand) == group.fx->name;
      return !operand.empty() && !own && !graph_.initializers.contains(operand) && !is_argument(operand);
    });
    const auto unknown = std::ranges::count_if(
        args, [&](const std::string& arg) { return !known_.contains(arg) && !metadata_.signature.contains(arg); });
    return std::max<int64_t>(0, unknown - in_place);
  }

  // Returns true if the operator that computed the initializer also computed a folded argument of the fx node: "exp_2"
  // and "exp".
  bool IsFoldedArgument(const Read& read) const {
    if (!folded_from_.contains(read.weight) || IsExporterName(read.weight)) return false;
    const std::string_view op = StripNumber(read.weight);
    return std::ranges::any_of(read.node->fx->args, [&](const std::string& arg) { return StripNumber(arg) == op; });
  }

  // Matches the reads whose initializer is named after an argument. Returns the others that may be arguments.
  std::vector<Read*> TakeOwn(FxGroup& group, const std::set<std::string>& all, std::vector<std::string>* args) {
    std::vector<Read*> open;
    std::set<std::pair<const ParsedNode*, std::string>> taken;
    // A statistic may be merged with a scale that the program does not have: operators take statistics last.
    std::stable_partition(group.reads.begin(), group.reads.end(),
                          [&](const Read* read) { return !IsBufferReadLater(*read, group); });
    for (Read* read : group.reads) {
      const std::string* own = Identity(read->weight);
      if (own != nullptr && Take(*own, read, args)) {
        taken.emplace(read->node, read->weight);
      } else if (own != nullptr && all.contains(*own) && !taken.contains({read->node, read->weight})) {
        read->placeholder = *own;  // several nodes read the same argument
      } else if (own != nullptr && reads_of_[read->weight].size() == 1) {
        continue;  // batch normalization was folded into it
      } else if (!IsDerived(read->weight) && !IsMadeOfSeveral(read->weight)) {
        open.push_back(read);
      }
    }
    return open;
  }

  // Returns true if a later input of the node reads the same buffer.
  bool IsBufferReadLater(const Read& read, const FxGroup& group) const {
    const std::string* own = Identity(read.weight);
    if (own == nullptr || Entry(*own).kind != SignatureEntry::Kind::kBuffer) return false;
    return std::ranges::any_of(group.reads, [&](const Read* other) {
      return other->node == read.node && other->weight == read.weight && other->input > read.input;
    });
  }

  bool IsDerived(const std::string& weight) const {
    const auto it = origins_.find(weight);
    return it != origins_.end() && it->second.kind == Kind::kConstant;
  }

  bool IsMadeOfSeveral(const std::string& weight) const {
    const auto it = folded_from_.find(weight);
    return it != folded_from_.end() && it->second.size() > 1;
  }

  // Matches reads at the position where other fx nodes of the operator read the initializer under its own name.
  void MatchByPosition(const FxNode& fx, std::vector<Read*>* open, std::vector<std::string>* args) {
    std::erase_if(*open, [&](Read* read) {
      const std::string* own = Identity(read->weight);
      const auto at = own == nullptr ? positions_.end() : positions_.find({fx.target, *own});
      return at != positions_.end() && at->second < fx.args.size() && Take(fx.args[at->second], read, args);
    });
  }

  // Matches a "weight" to the only "weight" among the arguments.
  void MatchByName(std::vector<Read*>* open, std::vector<std::string>* args) {
    const auto part = [&](const std::string& placeholder) { return LastPart(Entry(placeholder).target); };
    const auto read_part = [&](const Read* read) {
      const std::string* own = Identity(read->weight);
      return own == nullptr ? std::string_view() : part(*own);
    };
    std::erase_if(*open, [&](Read* read) {
      const std::string_view name = read_part(read);
      const auto same = [&](const std::string& arg) { return part(arg) == name; };
      const auto rivals = std::ranges::count_if(*open, [&](const Read* r) { return read_part(r) == name; });
      if (name.empty() || rivals != 1 || std::ranges::count_if(*args, same) != 1) return false;
      return Take(*std::ranges::find_if(*args, same), read, args);
    });
  }

  // If there are more reads than arguments, matches the only Mul with the weight and the only Add with the bias. A norm
  // of several nodes also reads constants that were merged with other parameters.
  void MatchByRole(std::vector<Read*>* open, std::vector<std::string>* args) {
    if (open->size() <= args->size()) return;
    for (const auto& role : {std::pair("weight", "Mul"), std::pair("bias", "Add")}) {
      const auto is_arg = [&](const std::string& arg) { return LastPart(Entry(arg).target) == role.first; };
      const auto is_read = [&](const Read* r) { return r->node->domain.empty() && r->node->op_type == role.second; };
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
    for (const auto& read : all_reads_) matched.insert(read->placeholder);
    for (const auto& read : all_reads_) {
      const std::string* own = Identity(read->weight);
      if (own == nullptr || !folded_from_.contains(read->weight) || !read->placeholder.empty() || read->derived)
        continue;
      const FxNode* fx = read->node->fx.get();
      if (fx == nullptr) continue;
      if (read->placeholder = FindOtherRole(*read, *own, matched); !read->placeholder.empty()) continue;
      if (std::ranges::count(fx->args, read->weight) > 0) continue;
      const auto [it, first] = taken.try_emplace({fx->module, UnknownArgs(*fx)});
      if (first) {
        it->second = FindRival(*read, Entry(*own).target, matched);
        if (!it->second.empty()) matched.insert(it->second);
      }
      read->placeholder = it->second;
    }
  }

  // Returns the arguments that nothing in the file computes or stores.
  std::string UnknownArgs(const FxNode& fx) const {
    std::string unknown;
    for (const std::string& arg : fx.args) {
      if (!known_.contains(arg) && !metadata_.signature.contains(arg)) StrAppend(&unknown, arg, " ");
    }
    return unknown;
  }

  std::string FindRival(const Read& read, std::string_view target, const std::set<std::string>& matched) const {
    const std::string& module = read.node->fx->module;
    const auto rival = placeholder_of_.find(StrCat(module, ".", NameInModule(read.weight, target)));
    if (rival == placeholder_of_.end()) return "";
    if (!matched.contains(rival->second)) return rival->second;
    std::vector<std::string> others;
    for (const std::string& other : ListOwnParameters(module)) {
      if (!matched.contains(placeholder_of_.at(other))) others.push_back(placeholder_of_.at(other));
    }
    return others.size() == 1 ? others[0] : "";
  }

  // Returns the name of a parameter in the module whose fx node reads the initializer folded from it: "qkv.bias".
  std::string_view NameInModule(const std::string& weight, std::string_view target) const {
    for (const Read* read : reads_of_.at(weight)) {
      const FxNode* fx = read->node->fx.get();
      if (fx == nullptr || std::ranges::count(fx->args, weight) == 0 || fx->module.empty()) continue;
      if (target.starts_with(fx->module + ".")) return target.substr(fx->module.size() + 1);
    }
    return LastPart(target);
  }

  // Separates two equal parameters of a module, a scale and a bias or two tokens, that one fx node reads from one
  // folded initializer. Returns the placeholder of the parameter that the initializer is not named after, if the read
  // refers to it: the only unmatched parameter of this role in the module. Else returns "".
  std::string FindOtherRole(const Read& read, const std::string& own, const std::set<std::string>& matched) const {
    const FxNode& fx = *read.node->fx;
    std::vector<const Read*> reads;
    for (const Read* r : groups_.at(fx.name).reads) {
      if (r->weight == read.weight) reads.push_back(r);
    }
    if (reads.size() != 2 || std::ranges::count(fx.args, read.weight) > 1) return "";
    const auto adds = [](const Read& r) { return r.node->domain.empty() && r.node->op_type == "Add"; };
    const auto is_bias = [&](const std::string& target) { return LastPart(target) == "bias"; };
    const bool by_role = adds(*reads[0]) != adds(*reads[1]);
    if (by_role ? is_bias(Entry(own).target) == adds(read) : reads[0] == &read) return "";
    std::vector<std::string> candidates;
    for (const std::string& target : ListOwnParameters(fx.module)) {
      const std::string& placeholder = placeholder_of_.at(target);
      const bool fits = by_role ? is_bias(target) == adds(read) : LastPart(target) != LastPart(Entry(own).target);
      if (fits && !matched.contains(placeholder)) candidates.push_back(placeholder);
    }
    return candidates.size() == 1 ? candidates[0] : "";
  }

  // Lists the parameters of a module, without those of its submodules.
  std::vector<std::string> ListOwnParameters(const std::string& module) const {
    const std::string prefix = module + ".";
    std::vector<std::string> targets;
    for (auto it = placeholder_of_.lower_bound(prefix); it != placeholder_of_.end() && it->first.starts_with(prefix);
         ++it) {
      const bool inner = it->first.find('.', prefix.size()) != std::string::npos;
      if (!inner && Entry(it->second).kind == SignatureEntry::Kind::kParameter) targets.push_back(it->first);
    }
    return targets;
  }

  // Matches a node without fx node whose initializer is named after a parameter that others read. If it is the only
  // such node, it reads the only unmatched parameter of the same name.
  void MatchByElimination() {
    std::set<std::string> matched = stored_;
    std::map<std::string, std::vector<Read*>, std::less<>> open;  // by the last part of the initializer's parameter
    for (const auto& read : all_reads_) {
      matched.insert(read->placeholder);
      const std::string* own = Identity(read->weight);
      const bool elsewhere =
          std::ranges::any_of(reads_of_[read->weight], [](const Read* r) { return r->node->fx != nullptr; });
      if (read->node->fx == nullptr && own != nullptr && elsewhere)
        open[std::string(LastPart(Entry(*own).target))].push_back(read.get());
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
    for (const auto& read : all_reads_) matched.insert(read->placeholder);
    for (const ParsedNode& node : graph_.nodes) {
      if (node.fx != nullptr) matched.insert(node.fx->args.begin(), node.fx->args.end());
    }
    std::map<std::string, std::vector<Read*>> candidates;  // by placeholder
    for (const auto& read : all_reads_) {
      const HostTensor& value = graph_.initializers.at(read->weight);
      const bool open = read->placeholder.empty() && !read->derived;
      if (!open || read->node->fx == nullptr || value.size() == 1 || !IsSplat(value)) continue;
      std::vector<std::string> unread;
      for (const std::string& target : ListOwnParameters(read->node->fx->module)) {
        if (!matched.contains(placeholder_of_.at(target))) unread.push_back(placeholder_of_.at(target));
      }
      if (unread.size() == 1 && CountComputedArgs(groups_.at(read->node->fx->name)) == 1)
        candidates[unread[0]].push_back(read.get());
    }
    for (const auto& [placeholder, reads] : candidates) {
      if (reads.size() != 1) continue;
      reads[0]->placeholder = placeholder;
      computed_.push_back(reads[0]);
    }
  }

  // Returns true if two parameters of equal bytes are distinct: both fresh, or of cloned layers. Other pairs are tied
  // in the program, such as the embedding and the head of a language model.
  bool AreApart(const HostTensor& value, const std::string& a, const std::string& b) const {
    return IsSplat(value) || WithoutDigits(Entry(a).target) == WithoutDigits(Entry(b).target);
  }

  void Decide(const std::string& name) {
    const auto found = reads_of_.find(name);
    if (found == reads_of_.end()) return;
    const std::vector<Read*>& reads = found->second;
    const std::string main = MainPlaceholder(name, reads);
    SetOrigin(name, main, reads);
    std::map<std::string, std::vector<FileReader>> others;  // by placeholder, "" for derived constants
    for (const Read* read : reads) {
      const bool other = !read->placeholder.empty() && read->placeholder != main &&
                         AreApart(graph_.initializers.at(name), main, read->placeholder);
      const bool derived = read->derived && !main.empty() && reads.size() > 1 && IsSplat(graph_.initializers.at(name));
      if (other || derived) others[read->placeholder].push_back(MakeFileReader(*read->node, read->input));
    }
    for (const auto& [placeholder, readers] : others) Split(name, placeholder, readers);
    if (IsMadeOfSeveral(name) || IsFreshPart(name)) SplitExpressions(name, reads);
  }

  // Returns true if it is a part of one parameter, such as a row, that equals the other parts.
  bool IsFreshPart(const std::string& name) const {
    return folded_from_.contains(name) && IsPart(name) && IsSplat(graph_.initializers.at(name));
  }

  // Splits expressions of several parameters each, such as the joined biases of an attention, and parts of one
  // parameter, that were equal in a fresh model.
  void SplitExpressions(const std::string& name, const std::vector<Read*>& reads) {
    const WeightOrigin origin = origins_[name];
    std::map<std::string, std::vector<FileReader>> others;  // by the argument
    for (const Read* read : reads) {
      const std::string arg = read->placeholder.empty() ? OtherExpression(*read) : "";
      if (!arg.empty()) others[arg].push_back(MakeFileReader(*read->node, read->input));
    }
    for (const auto& [arg, readers] : others)
      origins_[splitter_.Plan({.name = arg, .merged = name, .readers = readers})] = origin;
  }

  // Returns another argument of the reader's fx node that the same operator computed: "cat_4" for "cat_1"; "" if there
  // is none.
  std::string OtherExpression(const Read& read) const {
    if (read.node->fx == nullptr || std::ranges::count(read.node->fx->args, read.weight) > 0) return "";
    std::set<std::string> args;
    for (const std::string& arg : read.node->fx->args) {
      if (StripNumber(arg) == StripNumber(read.weight) && !known_.contains(arg)) args.insert(arg);
    }
    return args.size() == 1 ? *args.begin() : "";
  }

  std::set<std::string> HeldParameters() const {
    std::set<std::string> held;
    for (const auto& [name, origin] : origins_) held.insert(origin.module_name);
    return held;
  }

  // Restores zero biases that the exporter removed from a fresh model. The fx nodes of their readers still name them.
  void RestoreBiases(const std::set<std::string>& held) {
    std::map<std::string, std::vector<FileReader>> removed;  // by the name of the bias
    for (const ParsedNode& node : graph_.nodes) {
      const std::string bias = RemovedBias(node);
      if (!bias.empty() && !held.contains(bias)) removed[bias].push_back(MakeFileReader(node, 2));
    }
    for (const auto& [bias, readers] : removed) {
      const std::string name = splitter_.Plan({.name = bias, .merged = "", .readers = readers});
      origins_[name] = {.kind = Kind::kParameter, .module_name = bias};
      restored_.insert(bias);
    }
  }

  // Returns the bias among the arguments of the fx node, if the node lacks one that it can have; else "".
  std::string RemovedBias(const ParsedNode& node) const {
    if (node.fx == nullptr || node.inputs.size() != 2) return "";
    const auto weight = graph_.initializers.find(node.inputs[1]);
    if (weight == graph_.initializers.end() || CountBiasChannels(node, weight->second) == 0) return "";
    std::set<std::string> biases;
    const std::vector<std::string>& args = node.fx->args;
    for (size_t i = 0; i < args.size(); ++i) {
      const auto entry = metadata_.signature.find(args[i]);
      if (entry == metadata_.signature.end() || entry->second.kind != SignatureEntry::Kind::kParameter) continue;
      const bool third = i == 2 && TakesBiasThird(*node.fx);
      if (third || LastPart(entry->second.target).ends_with("bias")) biases.insert(entry->second.target);
    }
    return biases.size() == 1 ? *biases.begin() : "";
  }

  void ListMissing(const std::set<std::string>& held) {
    std::set<std::string> read;  // the program may have parameters that it does not use
    for (const ParsedNode& node : graph_.nodes) {
      if (node.fx != nullptr) read.insert(node.fx->args.begin(), node.fx->args.end());
    }
    for (const auto& [placeholder, entry] : metadata_.signature) {
      if (entry.kind != SignatureEntry::Kind::kParameter || held.contains(entry.target) ||
          restored_.contains(entry.target))
        continue;
      // A weight or bias that nothing reads is unused or tied; single factors and terms may have been removed.
      const std::string_view part = LastPart(entry.target);
      if (read.contains(placeholder)) {
        findings_.missing.push_back(entry.target);
      } else if (!part.ends_with("weight") && !part.ends_with("bias")) {
        findings_.unread.push_back(entry.target);
      }
    }
  }

  // Returns true if another initializer holds the parameter that `name` was folded from, with other values.
  bool IsStoredBeside(const std::string& name, const std::string& placeholder) const {
    const HostTensor& value = graph_.initializers.at(name);
    return std::ranges::any_of(identity_, [&](const auto& other) {
      if (other.first == name || other.second != placeholder || !graph_.initializers.contains(other.first))
        return false;
      const HostTensor& stored = graph_.initializers.at(other.first);
      return !(stored.type() == value.type() && stored.SameBytes(value)) && !IsTransposeOf(stored, value);
    });
  }

  // Returns true if the initializer, folded from one parameter, trains differently from it: its numbers differ, or its
  // gathered rows cannot be distinguished. Buffers that a product reads with the parameter are operands; those of
  // lookups are indices.
  bool IsExpression(const std::string& name) const {
    const std::vector<std::string>& sources = metadata_.weights.at(name).folded_from;
    const bool reads_buffer = std::ranges::any_of(sources, [&](const std::string& source) {
      const auto it = placeholder_of_.find(source);
      return it != placeholder_of_.end() && Entry(it->second).kind == SignatureEntry::Kind::kBuffer;
    });
    if (IsArithmetic(name, sources)) return true;
    if (IsLookedUp(name, sources)) return IsSplat(graph_.initializers.at(name));
    return reads_buffer && IsExporterName(name);
  }

  // Lists the initializer if it is exp(p), −exp(p) or the like. It remains an expression where p cannot be trained.
  void ListFunction(const std::string& name) {
    static constexpr std::pair<std::string_view, ParameterFunction> kFunctions[] = {
        {"exp", ParameterFunction::kExp}, {"sigmoid", ParameterFunction::kSigmoid}, {"tanh", ParameterFunction::kTanh}};
    if (splitter_.IsSplit(name)) return;  // others would be expressions, too
    const std::vector<std::string> sources = WithoutParameters(metadata_.weights.at(name).folded_from);
    const std::vector<std::string_view> steps = ListSteps(name, sources);
    if (steps == std::vector<std::string_view>{"exp", "neg"})  // −exp(p) if the values are negative
      findings_.functions.emplace_back(name, ParameterFunction::kNegatedExp);
    if (IsSoftplus(steps)) findings_.functions.emplace_back(name, ParameterFunction::kSoftplus);
    for (const auto& [known, function] : kFunctions) {
      if (steps == std::vector<std::string_view>{known}) findings_.functions.emplace_back(name, function);
    }
  }

  void ListFolded() {
    for (const auto& [name, parameters] : folded_from_) {
      if (!reads_of_.contains(name)) continue;
      const bool alone = parameters.size() == 1 && !IsStoredBeside(name, parameters[0]);
      if (alone && !IsExpression(name)) continue;
      if (alone) ListFunction(name);
      FoldedWeight folded{.name = name};
      for (const std::string& placeholder : parameters) folded.parameters.push_back(Entry(placeholder).target);
      findings_.folded.push_back(std::move(folded));
    }
    for (const Read* read : computed_)
      findings_.folded.push_back({.name = read->weight, .parameters = {Entry(read->placeholder).target}});
  }

  void Split(const std::string& merged, const std::string& placeholder, const std::vector<FileReader>& readers) {
    const bool derived = placeholder.empty();
    const std::string target = derived ? merged + ".constant" : Entry(placeholder).target;
    const std::string name = splitter_.Plan({.name = target, .merged = merged, .readers = readers});
    if (!derived && std::ranges::count(findings_.looked_up, merged) > 0) findings_.looked_up.push_back(name);
    origins_[name] = {.kind = derived ? Kind::kConstant : OriginKind(Entry(placeholder).kind),
                      .module_name = derived ? "" : target};
  }

  // Returns the parameter that keeps the initializer's name; "" if none is known.
  std::string MainPlaceholder(const std::string& name, const std::vector<Read*>& reads) const {
    const std::string* own = Identity(name);
    const auto is_own = [&](const Read* r) {
      return !r->derived && (r->placeholder.empty() || r->placeholder == *own);
    };
    if (own != nullptr && std::ranges::any_of(reads, is_own)) return *own;
    const auto first = std::ranges::find_if(reads, [](const Read* r) { return !r->placeholder.empty(); });
    return first != reads.end() ? (*first)->placeholder : own != nullptr ? *own : "";
  }

  void SetOrigin(const std::string& name, const std::string& placeholder, const std::vector<Read*>& reads) {
    WeightOrigin& origin = origins_[name];
    if (!placeholder.empty()) {
      origin = {.kind = OriginKind(Entry(placeholder).kind), .module_name = Entry(placeholder).target};
    } else if (origin.kind == Kind::kUnknown) {
      const bool weight = std::ranges::any_of(reads, [](const Read* r) { return TakesWeight(*r->node, r->input); });
      const bool traced = std::ranges::all_of(reads, [](const Read* r) { return r->node->fx != nullptr; });
      if (traced && !weight) origin.kind = Kind::kConstant;
    }
  }

  // Names the numbers of quantized weights, whose nodes have no metadata, after the parameters that the quantizer read.
  void NameQuantized() {
    for (const std::string& name : graph_.initializer_order) {
      const auto weight = metadata_.weights.find(NameBeforeQuantization(name));
      if (IsFloat(graph_.initializers.at(name).dtype()) || weight == metadata_.weights.end()) continue;
      const std::vector<std::string>& sources = weight->second.folded_from;
      if (sources.size() == 1 && IsParameter(sources[0])) origins_[name].module_name = sources[0];
    }
  }

  void ListOrigins() {
    for (const std::string& name : graph_.initializer_order) {
      const auto origin = origins_.find(name);
      if (origin == origins_.end()) continue;
      const std::string& module_name = origin->second.module_name;
      const std::string why = module_name.empty() ? "the metadata of torch.export names no parameter for it"
                                                  : StrCat("it is '", module_name, "' in the exported module");
      findings_.origins.push_back({.weight = name, .why = why, .form = origin->second});
    }
    for (SplitWeight split : splitter_.TakeSplits()) {
      split.origin = origins_[split.name];
      const bool restored = split.merged.empty();
      const std::string why = restored
                                  ? "the exporter removed a bias of zeros"
                                  : StrCat("the exporter stored it in '", split.merged, "', which had equal bytes");
      (restored ? findings_.restored : findings_.splits).push_back({.weight = split.name, .why = why, .form = split});
    }
  }

  const TorchMetadata& metadata_;
  const ParsedGraph& graph_;
  WeightOrigins origins_;
  SplitPlanner splitter_;
  std::map<std::string, std::string> placeholder_of_;            // by target
  std::map<std::string, std::string> identity_;                  // placeholder, by initializer
  std::map<std::string, std::vector<std::string>> folded_from_;  // placeholders of parameters, by initializer
  std::set<std::string> stored_;                                 // placeholders that initializers are named after
  std::vector<std::unique_ptr<Read>> all_reads_;
  TorchNaming findings_;
  std::vector<const Read*> computed_;                                // parameters of which constants were stored
  std::set<std::string> known_;                                      // fx nodes of the file's nodes; inputs
  std::map<std::string, std::string> maker_;                         // fx node, by the value that its nodes produce
  std::set<std::string> restored_;                                   // biases
  std::map<std::string, std::vector<Read*>> reads_of_;               // by initializer
  std::map<std::string, FxGroup> groups_;                            // by fx node
  std::map<std::pair<std::string, std::string>, size_t> positions_;  // argument index, by operator and placeholder
};

}  // namespace

bool TakesWeight(const ParsedNode& node, size_t input) {
  const OnnxTraits& traits = GetOnnxTraits(node);
  const bool elementwise = (traits.weight_inputs & 1) != 0 && !traits.classifier;
  return !elementwise && input < 32 && (traits.weight_inputs >> input & 1) != 0;
}

bool ReadsShapeOnly(const ParsedNode& node) {
  return node.domain.empty() && (node.op_type == "Shape" || node.op_type == "Size");
}

FileReader MakeFileReader(const ParsedNode& node, size_t input) {
  const auto output = std::ranges::find_if(node.outputs, [](const std::string& o) { return !o.empty(); });
  return {.node = output == node.outputs.end() ? "" : *output, .input = input};
}

std::string SplitPlanner::Plan(SplitWeight split) {
  const std::string name = split.name;
  for (int i = 1; index_.IsNameTaken(split.name) || !names_.insert(split.name).second; ++i)
    split.name = StrCat(name, "_", i);
  splits_.push_back(std::move(split));
  return splits_.back().name;
}

bool SplitPlanner::IsSplit(const std::string& merged) const {
  return std::ranges::count(splits_, merged, &SplitWeight::merged) > 0;
}

absl::StatusOr<WeightRecords> MatchOrigins(WeightIndex* index) {
  if (!index->metadata().signature.empty()) index->naming = TorchNamer(*index).Run();
  return index->naming.origins;
}

absl::StatusOr<WeightRecords> MatchMergedWeights(WeightIndex* index) { return index->naming.splits; }

absl::StatusOr<WeightRecords> MatchRemovedBiases(WeightIndex* index) { return index->naming.restored; }

void BuildOrigin(const WeightRecord& record, WeightIndex* index) {
  index->mutable_graph().origins[record.weight] = std::get<WeightOrigin>(record.form);
}

void BuildSplit(const WeightRecord& record, WeightIndex* index) {
  const auto& split = std::get<SplitWeight>(record.form);
  ParsedGraph& graph = index->mutable_graph();
  HostTensor value;
  if (split.merged.empty()) {
    const ParsedNode& product = *index->Producer(split.readers[0].node);
    const HostTensor& weight = graph.initializers.at(product.inputs[1]);
    value = HostTensor({weight.dtype(), {CountBiasChannels(product, weight)}});
  } else {
    value = graph.initializers.at(split.merged);
  }
  for (const FileReader& reader : split.readers) {
    ParsedNode* node = index->Producer(reader.node);
    if (node == nullptr) continue;  // its outputs have no readers
    std::vector<std::string>& inputs = node->inputs;
    inputs.resize(std::max(inputs.size(), reader.input + 1));
    inputs[reader.input] = split.name;
  }
  graph.initializers.emplace(split.name, std::move(value));
  graph.initializer_order.push_back(split.name);
  graph.origins[split.name] = split.origin;
}

// An untrained weight has the bytes of the initializer that it was merged into, or is zero.
absl::Status WriteSplit(const WeightRecord& record, StoredWeights* weights) {
  const auto& split = std::get<SplitWeight>(record.form);
  StoredWeights::Split stored{.split = &split};
  if (const auto trained = weights->tensors.extract(split.name); !trained.empty()) stored.value = trained.mapped();
  weights->splits.insert(weights->splits.begin(), std::move(stored));
  return absl::OkStatus();
}

}  // namespace onnxtrain
