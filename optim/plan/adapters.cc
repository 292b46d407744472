#include "optim/plan/adapters.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "optim/config/weight_globs.h"
#include "optim/plan/adapter_init.h"
#include "optim/plan/peft_adapter.h"

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

// Returns true if the pattern names the target's module, or the packed one that it is a part of.
bool MatchesTarget(const std::string& pattern, const LowRankTarget& target) {
  return MatchesModule(pattern, target.module) || MatchesModule(pattern, target.weight_module());
}

// Matrix products but the output layer, or convolutions where there are none.
bool IsDefault(const std::vector<LowRankTarget>& targets, size_t i) {
  const auto is_linear = [](const LowRankTarget& target) { return target.kernel.empty() && !target.output_layer; };
  return is_linear(targets[i]) || (!targets[i].output_layer && std::ranges::none_of(targets, is_linear));
}

std::vector<std::string> ListPatterns(const TrainConfig& config) {
  std::vector<std::string> patterns;
  for (const std::string& texts : config.lora_target) {
    const std::vector<std::string> parts = absl::StrSplit(texts, ',', absl::SkipEmpty());
    patterns.insert(patterns.end(), parts.begin(), parts.end());
  }
  if (patterns.empty()) patterns.emplace_back(kAllLinear);
  return patterns;
}

std::string DescribeLeftOut(const LeftOutProduct& product) {
  return StrCat("'", Printable(product.module), "' ", product.why);
}

absl::Status ExplainNoMatch(const std::string& pattern, const std::vector<LowRankTarget>& targets,
                            const std::vector<LeftOutProduct>& left_out) {
  for (const LeftOutProduct& product : left_out) {
    if (MatchesModule(pattern, product.module))
      return Invalid("`lora_target` ", pattern, ": ", DescribeLeftOut(product), ": it can have no adapter");
  }
  return Invalid("`lora_target` ", pattern, ": matches no product with a stored matrix; there are ",
                 ListTargetNames(targets));
}

absl::StatusOr<std::vector<LowRankTarget>> ChooseTargets(const TrainConfig& config, std::vector<LowRankTarget> targets,
                                                         const std::vector<LeftOutProduct>& left_out) {
  if (targets.empty())
    return Invalid("`lora_rank`: the model has no product with a stored matrix",
                   left_out.empty() ? "" : StrCat(" that can have an adapter: ", DescribeLeftOut(left_out[0])));
  std::set<size_t> chosen;
  for (const std::string& pattern : ListPatterns(config)) {
    bool matched = false;
    for (size_t i = 0; i < targets.size(); ++i) {
      const LowRankTarget& target = targets[i];
      const bool all = pattern == kAllLinear;
      if (!(all ? IsDefault(targets, i) : MatchesTarget(pattern, target))) continue;
      matched = true;
      if (TrainsWhole(config, target)) {
        if (all) continue;
        return Invalid("`lora_target` ", pattern, ": `train` trains the weight of '", target.module, "' whole");
      }
      chosen.insert(i);
    }
    if (!matched && pattern == kAllLinear)
      return Invalid("`lora_target` all-linear: the model has no product but its output layer; name it: ",
                     ListTargetNames(targets), left_out.empty() ? "" : StrCat(". ", DescribeLeftOut(left_out[0])));
    if (!matched) return ExplainNoMatch(pattern, targets, left_out);
  }
  if (chosen.empty()) return Invalid("`lora_rank`: `train` trains the weights of all products whole");
  std::vector<LowRankTarget> result;
  for (const size_t i : chosen) result.push_back(std::move(targets[i]));
  return result;
}

// The rank of a target: of the last pattern that matches, else the one without a pattern.
absl::StatusOr<int64_t> ChooseRank(const LowRankTarget& target, const std::vector<Rank>& ranks,
                                   std::set<size_t>* used) {
  std::optional<size_t> found;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool matches = ranks[i].pattern.empty() || MatchesTarget(ranks[i].pattern, target);
    if (!matches) continue;
    used->insert(i);
    if (!found || !ranks[i].pattern.empty()) found = i;
  }
  if (!found) return Invalid("`lora_rank`: no rank for '", target.module, "' (say `lora_rank` R for all)");
  const int64_t rank = ranks[*found].rank, most = std::min(CountInputs(target), target.outputs);
  if (rank > most)
    return Invalid("`lora_rank` ", rank, ": the weight of '", target.module, "' is ", target.outputs, " × ",
                   CountInputs(target), ": at most ", most, " (`lora_rank` ", target.module, "=", most, ")");
  return rank;
}

}  // namespace

std::string ListTargetNames(const std::vector<LowRankTarget>& targets) {
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

std::vector<LowRankTarget> ListAdapterTargets(const OnnxModel& model) {
  constexpr std::string_view kPackedTypes[] = {"phi3", "phi4"};  // by how they begin
  const auto path = std::filesystem::path(model.path()).parent_path() / "genai_config.json";
  const auto text = ReadTextFile(path.string(), int64_t{16} << 20);
  const auto json = text.ok() ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  const auto key = nlohmann::json::json_pointer("/model/type");
  const bool known = json.is_object() && json.contains(key) && json[key].is_string();
  const std::string type = known ? json[key].get<std::string>() : "";
  const auto begins = [&](std::string_view begin) { return type.starts_with(begin); };
  return ListLowRankTargets(model, std::ranges::any_of(kPackedTypes, begins));
}

bool TrainsWhole(const TrainConfig& config, const LowRankTarget& target) {
  return std::ranges::any_of(config.train, [&](const std::string& pattern) {
    return MatchesWeight(pattern, target.weight, "", target.parameter());
  });
}

bool MatchesModule(const std::string& pattern, const std::string& module) {
  return module == pattern || module.ends_with("." + pattern) || fnmatch(pattern.c_str(), module.c_str(), 0) == 0;
}

absl::StatusOr<AdapterPlan> PlanAdapters(const TrainConfig& config, const OnnxModel& model) {
  AdapterPlan plan;
  if (!config.adapter.empty()) return ReadAdapters(config.adapter, model);
  if (config.lora_rank.empty()) return plan;
  ASSIGN_OR_RETURN(const std::vector<Rank> ranks, ParseRanks(config.lora_rank));
  std::vector<LeftOutProduct> left_out = ListLeftOutProducts(model);
  ASSIGN_OR_RETURN(const std::vector<LowRankTarget> targets,
                   ChooseTargets(config, ListAdapterTargets(model), left_out));
  std::erase_if(left_out, [](const LeftOutProduct& product) { return product.output_layer; });
  if (std::ranges::count(ListPatterns(config), kAllLinear) > 0) plan.left_out = std::move(left_out);
  std::set<size_t> used;
  for (const LowRankTarget& target : targets) {
    ASSIGN_OR_RETURN(const int64_t rank, ChooseRank(target, ranks, &used));
    ASSIGN_OR_RETURN(LowRankUpdate update, MakeInitialUpdate(config, target, rank, model));
    plan.updates.push_back(std::move(update));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!used.contains(i))
      return Invalid("`lora_rank` ", ranks[i].pattern, "=", ranks[i].rank, ": matches none of the targets, ",
                     ListTargetNames(targets));
  }
  return plan;
}

namespace {

// Returns "; none beside 2 products in bodies of If, Loop and Scan; none beside 'head', which shares 'w' with …".
std::string SummarizeLeftOut(const std::vector<LeftOutProduct>& products) {
  const int64_t in_bodies = std::ranges::count(products, true, &LeftOutProduct::in_body);
  const int64_t others = std::ssize(products) - in_bodies;
  const auto first = std::ranges::find(products, false, &LeftOutProduct::in_body);
  std::string text;
  if (in_bodies > 0)
    StrAppend(&text, "; none beside ", in_bodies, in_bodies == 1 ? " product" : " products",
              " in bodies of If, Loop and Scan");
  if (others > 0)
    StrAppend(&text, "; none beside '", Printable(first->module), "', which ", first->why,
              others > 1 ? StrCat(", and ", others - 1, " more of this kind") : "");
  return text;
}

}  // namespace

std::string DescribeAdapters(const AdapterPlan& plan) {
  constexpr size_t kListed = 12;
  std::set<int64_t> ranks;
  std::set<std::string> names;
  int64_t values = 0;
  for (const LowRankUpdate& update : plan.updates) {
    ranks.insert(update.rank());
    names.insert(update.module.substr(update.module.rfind('.') + 1));
    for (const auto& [name, initial] : update.Trained()) values += initial.size();
  }
  const std::vector<std::string> listed(names.begin(), std::next(names.begin(), std::min(names.size(), kListed)));
  const std::string more = names.size() > kListed ? StrCat(" and ", names.size() - kListed, " more") : "";
  return StrCat("adapters: ", plan.updates.size(), " of rank ", absl::StrJoin(ranks, ", "), ", ",
                FormatWithCommas(values), " values, beside ", absl::StrJoin(listed, ", "), more,
                " (`lora_rank`, `lora_target`)", SummarizeLeftOut(plan.left_out),
                plan.whole.empty() ? "" : StrCat("; ", plan.whole.size(), " whole weights of the adapter"));
}

}  // namespace onnxtrain
