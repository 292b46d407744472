#include "optim/plan/adapters.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "optim/plan/peft_adapter.h"
#include "optim/step/weight_initializer.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kAllLinear = "all-linear";

struct Rank {
  std::string pattern;  // "": of all others
  int64_t rank = 0;
};

absl::StatusOr<std::vector<Rank>> ParseRanks(const std::vector<std::string>& texts) {
  std::vector<Rank> ranks;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    const std::string pattern = equals == std::string::npos ? "" : text.substr(0, equals);
    const auto rank = ParseInt(equals == std::string::npos ? text : text.substr(equals + 1));
    if (!rank.ok() || *rank < 1) return Invalid("`lora_rank` ", text, ": expected R or GLOB=R, R at least 1");
    const auto same = [&](const Rank& other) { return other.pattern == pattern; };
    if (std::ranges::any_of(ranks, same)) return Invalid("`lora_rank` ", text, ": a rank is given already");
    ranks.push_back({pattern, *rank});
  }
  return ranks;
}

// The last components of the modules, each once: "q_proj, k_proj, … (12 in all)".
std::string ListNames(const std::vector<LowRankTarget>& targets) {
  constexpr size_t kMost = 12;
  std::vector<std::string> names;
  for (const LowRankTarget& target : targets) {
    const std::string name = target.module.substr(target.module.rfind('.') + 1);
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  const size_t all = names.size();
  names.resize(std::min(all, kMost));
  return StrCat(absl::StrJoin(names, ", "), all > kMost ? StrCat(", … (", all, " in all)") : "");
}

absl::StatusOr<std::vector<LowRankTarget>> ChooseTargets(const TrainConfig& config,
                                                         std::vector<LowRankTarget> targets) {
  if (targets.empty()) return Invalid("`lora_rank`: the model has no product with a stored matrix");
  std::vector<std::string> patterns;
  for (const std::string& texts : config.lora_target) {
    const std::vector<std::string> parts = absl::StrSplit(texts, ',', absl::SkipEmpty());
    patterns.insert(patterns.end(), parts.begin(), parts.end());
  }
  if (patterns.empty()) patterns.emplace_back(kAllLinear);
  std::set<size_t> chosen;
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (size_t i = 0; i < targets.size(); ++i) {
      const LowRankTarget& target = targets[i];
      if (pattern == kAllLinear ? target.output_layer : !MatchesModule(pattern, target.module)) continue;
      matched = true;
      chosen.insert(i);
    }
    if (!matched && pattern == kAllLinear)
      return Invalid("`lora_target` all-linear: the model has no product but its output layer; name it: ",
                     ListNames(targets));
    if (!matched)
      return Invalid("`lora_target` ", pattern, ": matches no product with a stored matrix; there are ",
                     ListNames(targets));
  }
  std::vector<LowRankTarget> result;
  for (const size_t i : chosen) result.push_back(std::move(targets[i]));
  return result;
}

// The rank of a target: of the last pattern that matches, else the one without a pattern.
absl::StatusOr<int64_t> ChooseRank(const LowRankTarget& target, const std::vector<Rank>& ranks,
                                   std::set<size_t>* used) {
  std::optional<size_t> found;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool matches = ranks[i].pattern.empty() || MatchesModule(ranks[i].pattern, target.module);
    if (!matches) continue;
    used->insert(i);
    if (!found || !ranks[i].pattern.empty()) found = i;
  }
  if (!found) return Invalid("`lora_rank`: no rank for '", target.module, "' (say `lora_rank` R for all)");
  const int64_t rank = ranks[*found].rank, most = std::min(target.inputs, target.outputs);
  if (rank > most)
    return Invalid("`lora_rank` ", rank, ": the weight of '", target.module, "' is ", target.outputs, " × ",
                   target.inputs, ": at most ", most);
  return rank;
}

LowRankUpdate MakeUpdate(const TrainConfig& config, const LowRankTarget& target, int64_t rank) {
  const double alpha = config.lora_alpha > 0 ? config.lora_alpha : 2 * static_cast<double>(rank);
  LowRankUpdate update{.nodes = target.nodes,
                       .weight = target.weight,
                       .outputs_first = target.outputs_first,
                       .module = target.module,
                       .scale = alpha / AlphaDivisor(config.lora_variant == "rslora", rank),
                       .b = HostTensor({target.dtype, {target.outputs, rank}})};
  const Type type{target.dtype, {rank, target.inputs}};
  const auto seed = static_cast<uint64_t>(config.seed);
  update.a = config.lora_init == "gaussian"
                 ? DrawNormal(update.a_name(), type, 1 / static_cast<double>(rank), seed)
                 : DrawUniform(update.a_name(), type, 1 / std::sqrt(static_cast<double>(target.inputs)), seed);
  return update;
}

// The target of a module of an adapter: of the same name, or the only one of which one name ends in the other.
absl::StatusOr<const LowRankTarget*> FindModule(const std::string& module, const std::vector<LowRankTarget>& targets) {
  const LowRankTarget* found = nullptr;
  int count = 0;
  for (const LowRankTarget& target : targets) {
    if (target.module == module) return &target;
    if (!target.module.ends_with("." + module) && !module.ends_with("." + target.module)) continue;
    found = &target;
    ++count;
  }
  if (count == 1) return found;
  return Invalid("the model has no product of its module '", Printable(module), "'; there are ", ListNames(targets));
}

absl::StatusOr<std::vector<LowRankUpdate>> ReadUpdates(const std::string& folder,
                                                       const std::vector<LowRankTarget>& targets) {
  ASSIGN_OR_RETURN(std::vector<PeftModule> modules, ReadPeftAdapter(folder));
  std::map<std::string, LowRankUpdate> updates;  // by weight
  for (PeftModule& module : modules) {
    ASSIGN_OR_RETURN(const LowRankTarget* target, FindModule(module.module, targets));
    const bool fits = module.a.shape()[1] == target->inputs && module.b.shape()[0] == target->outputs;
    if (!fits)
      return Invalid("its module '", Printable(module.module), "' is of ", module.b.shape()[0], " × ",
                     module.a.shape()[1], ", the model's weight ", target->outputs, " × ", target->inputs);
    updates[target->weight] = {.nodes = target->nodes,
                               .weight = target->weight,
                               .outputs_first = target->outputs_first,
                               .module = target->module,
                               .scale = module.scale,
                               .a = module.a.CastTo(target->dtype),
                               .b = module.b.CastTo(target->dtype)};
  }
  std::vector<LowRankUpdate> in_order;
  for (const LowRankTarget& target : targets) {
    if (const auto found = updates.find(target.weight); found != updates.end())
      in_order.push_back(std::move(found->second));
  }
  return in_order;
}

}  // namespace

bool MatchesModule(const std::string& pattern, const std::string& module) {
  return module == pattern || module.ends_with("." + pattern) || fnmatch(pattern.c_str(), module.c_str(), 0) == 0;
}

absl::StatusOr<std::vector<LowRankUpdate>> PlanAdapters(const TrainConfig& config, const OnnxModel& model) {
  std::vector<LowRankUpdate> updates;
  if (!HasAdapters(config)) return updates;
  if (!config.adapter.empty()) {
    auto read = ReadUpdates(config.adapter, ListLowRankTargets(model));
    return read.ok() ? read : Annotate(read.status(), StrCat("`adapter` ", config.adapter, ": "));
  }
  ASSIGN_OR_RETURN(const std::vector<Rank> ranks, ParseRanks(config.lora_rank));
  ASSIGN_OR_RETURN(const std::vector<LowRankTarget> targets, ChooseTargets(config, ListLowRankTargets(model)));
  std::set<size_t> used;
  for (const LowRankTarget& target : targets) {
    ASSIGN_OR_RETURN(const int64_t rank, ChooseRank(target, ranks, &used));
    updates.push_back(MakeUpdate(config, target, rank));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!used.contains(i))
      return Invalid("`lora_rank` ", ranks[i].pattern, "=", ranks[i].rank, ": matches none of the targets, ",
                     ListNames(targets));
  }
  return updates;
}

std::string DescribeAdapters(const std::vector<LowRankUpdate>& updates) {
  std::set<int64_t> ranks;
  std::set<std::string> names;
  int64_t values = 0;
  for (const LowRankUpdate& update : updates) {
    ranks.insert(update.rank());
    names.insert(update.module.substr(update.module.rfind('.') + 1));
    values += update.a.size() + update.b.size();
  }
  return StrCat("adapters: ", updates.size(), " of rank ", absl::StrJoin(ranks, ", "), ", ", FormatWithCommas(values),
                " values, beside ", absl::StrJoin(names, ", "), " (`lora_rank`, `lora_target`)");
}

}  // namespace onnxtrain
