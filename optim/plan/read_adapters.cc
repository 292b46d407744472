#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/onnx/interop/ort_adapter.h"
#include "frontend/onnx/write/lazy_tensor.h"
#include "optim/plan/adapter_init.h"
#include "optim/plan/adapters.h"
#include "optim/plan/peft_adapter.h"

namespace onnxtrain {
namespace {

// "PATH" of "PATH=W" or "PATH*W"; a text without such a number is a path.
WeightedAdapter ParseTerm(const std::string& text, std::string_view signs) {
  const size_t sign = text.find_last_of(signs);
  if (sign == std::string::npos || sign == 0) return {text};
  const auto weight = ParseNumber(text.substr(sign + 1));
  return weight.ok() ? WeightedAdapter{text.substr(0, sign), *weight} : WeightedAdapter{text};
}

// Returns the terms of "A*0.7+B*0.3"; nothing if a part has no weight, since a path may contain "+".
std::vector<WeightedAdapter> ParseSum(const std::string& text) {
  std::vector<WeightedAdapter> terms;
  for (const auto part : absl::StrSplit(text, '+')) {
    terms.push_back(ParseTerm(std::string(part), "*"));
    if (terms.back().path == part) return {};
  }
  return terms;
}

// Finds modules and weights of one model by the names in adapters.
class NameMatcher {
 public:
  explicit NameMatcher(const OnnxModel& model)
      : model_(model), targets_(ListAdapterTargets(model)), weights_(ListModuleWeights(model, targets_)) {}

  const OnnxModel& model() const { return model_; }
  const std::vector<LowRankTarget>& targets() const { return targets_; }

  // Return null unless one name is equal, or only one ends in the other. A module that is no target may hold the
  // weights of experts.
  const LowRankTarget* FindTarget(const AdapterModule& module, const AdapterContent& content) const {
    const LowRankTarget* target = module.depth == 0 ? Find(targets_, module.module, &LowRankTarget::module) : nullptr;
    return target == nullptr ? FindExperts(module, content) : target;
  }
  const ModuleWeight* FindWeight(const std::string& name) const { return Find(weights_, name, &ModuleWeight::name); }

  // The model's value of a weight that FindWeight found.
  const HostTensor& ValueOf(const std::string& weight) const {
    return std::ranges::find(weights_, weight, &ModuleWeight::weight)->value;
  }

 private:
  static bool AreSame(const std::string& a, const std::string& b) {
    return a == b || a.ends_with("." + b) || b.ends_with("." + a);
  }

  // Returns the parameter of the module that the adapter at this depth of wrappers changes, the last one at depth 0.
  const LowRankTarget* FindExperts(const AdapterModule& module, const AdapterContent& content) const {
    std::vector<const LowRankTarget*> found;
    for (const LowRankTarget& target : targets_) {
      const auto named = [&](const std::string& end) { return AreSame(target.module, end); };
      const bool adapted = content.parameters.empty() || std::ranges::any_of(content.parameters, named);
      if (target.experts > 0 && adapted && AreSame(target.module.substr(0, target.module.rfind('.')), module.module))
        found.push_back(&target);
    }
    const int64_t at = std::ssize(found) - 1 - module.depth;
    return at < 0 ? nullptr : found[static_cast<size_t>(at)];
  }

  template <typename Element>
  static const Element* Find(const std::vector<Element>& all, const std::string& name, std::string Element::*member) {
    const Element* found = nullptr;
    int count = 0;
    for (const Element& element : all) {
      const std::string& other = element.*member;
      if (other == name) return &element;
      if (!AreSame(other, name)) continue;
      found = &element;
      ++count;
    }
    return count == 1 ? found : nullptr;
  }

  const OnnxModel& model_;
  std::vector<LowRankTarget> targets_;
  std::vector<ModuleWeight> weights_;
};

int64_t GetRank(const AdapterModule& module, const LowRankTarget& target) {
  return module.a.shape()[0] / std::max<int64_t>(target.experts, 1);
}

// Returns why an adapter does not fit the target; "" if it does.
std::string ExplainMisfit(const AdapterModule& module, const LowRankTarget* target) {
  if (target == nullptr) return "no product of that name";
  const int64_t rank = GetRank(module, *target), most = std::min(CountInputs(*target), target->outputs);
  const AdapterShapes shapes = GetAdapterShapes(*target, rank);
  if (module.a.shape() != shapes.a || module.b.shape() != shapes.b)
    return StrCat("A ", ToString(module.a.shape()), " and B ", ToString(module.b.shape()),
                  ", the model's weight takes ", ToString(shapes.a), " and ", ToString(shapes.b));
  if (!module.magnitude.shape().empty() && module.magnitude.size() != target->outputs)
    return StrCat(module.magnitude.size(), " magnitudes, the model's weight has ", target->outputs, " outputs");
  return rank > most ? StrCat("rank ", rank, ": at most ", most) : "";
}

// Returns the value as the graph stores the weight; without elements if the shapes differ.
HostTensor ArrangeAsStored(const HostTensor& value, const ModuleWeight& weight, bool inputs_first) {
  const Shape& stored = weight.value.shape();
  const bool matrix = value.shape().size() == 2 && stored.size() == 2, same = value.shape() == stored;
  const bool fits = matrix && value.shape()[0] == stored.back() && value.shape()[1] == stored[0];
  const bool transpose = matrix && fits && (!same || (weight.transposed && !inputs_first));
  return transpose ? Transpose(value).Whole() : same ? value : HostTensor();
}

// Requires a module that fits.
LowRankUpdate ToUpdate(const AdapterModule& module, const LowRankTarget& target, const AdapterContent& content) {
  LowRankUpdate update = MakeUpdate(target);
  update.scale = content.scale(target.of_parameter ? target.parameter() : module.module, GetRank(module, target));
  update.dropout = content.dropout;
  update.a = module.a.CastTo(target.dtype);
  update.b = module.b.CastTo(target.dtype);
  if (!module.magnitude.shape().empty())
    update.magnitude =
        module.magnitude.CastTo(target.dtype).Reshaped(GetAdapterShapes(target, update.rank()).magnitude);
  return update;
}

// The content of one adapter in terms of the model.
struct MatchedAdapter {
  std::map<std::string, LowRankUpdate> updates;  // by module of the target
  std::map<std::string, HostTensor> whole;       // by weight
};

// Joins the reasons why parts of an adapter do not fit, up to a number that fits a line.
std::string JoinMisfits(const std::vector<std::string>& misfits) {
  constexpr size_t kMost = 4;
  const std::vector<std::string> first(misfits.begin(), misfits.begin() + std::ssize(misfits) -
                                                            std::max<int64_t>(0, std::ssize(misfits) - int64_t{kMost}));
  return StrCat(absl::StrJoin(first, "; "), misfits.size() > kMost ? "; …" : "");
}

absl::StatusOr<MatchedAdapter> MatchAdapter(const AdapterContent& content, const NameMatcher& names) {
  MatchedAdapter matched;
  std::vector<std::string> misfits;
  for (const AdapterModule& module : content.modules) {
    const LowRankTarget* target = names.FindTarget(module, content);
    std::string misfit = ExplainMisfit(module, target);
    if (misfit.empty() && matched.updates.contains(target->module)) misfit = "another module has the same weight";
    if (!misfit.empty()) {
      misfits.push_back(StrCat("'", Printable(module.module), "': ", misfit));
      continue;
    }
    matched.updates[target->module] = ToUpdate(module, *target, content);
  }
  for (const auto& [name, value] : content.whole) {
    const ModuleWeight* weight = names.FindWeight(name);
    HostTensor stored = weight == nullptr ? HostTensor() : ArrangeAsStored(value, *weight, content.inputs_first);
    if (weight != nullptr && stored.shape() == weight->value.shape()) {
      matched.whole[weight->weight] = std::move(stored);
      continue;
    }
    misfits.push_back(StrCat("'", Printable(name), "': ",
                             weight == nullptr ? "no weight of that name"
                                               : StrCat(ToString(value.shape()), ", the model's weight is ",
                                                        ToString(weight->value.shape()))));
  }
  if (misfits.empty()) return matched;
  const size_t all = content.modules.size() + content.whole.size();
  return Invalid(misfits.size(), " of its ", all, " parts ", misfits.size() == 1 ? "does" : "do", " not fit ",
                 names.model().path(), ": ", JoinMisfits(misfits), "; its products are ",
                 ListTargetNames(names.targets()));
}

// Appends the elements of a matrix, times a factor, as columns of `to` from `column` on.
void SetColumns(const HostTensor& from, double factor, int64_t column, HostTensor* to) {
  const int64_t rows = from.shape()[0], columns = from.shape()[1], width = to->shape()[1];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to->Set(r * width + column + c, factor * from.At(r * columns + c));
  }
}

// Returns one update equal to the weighted sum of several beside the same weight: its rank is the sum of theirs.
// Fails on magnitudes, whose effect is no sum.
absl::StatusOr<LowRankUpdate> StackUpdates(const std::vector<std::pair<const LowRankUpdate*, double>>& terms) {
  const LowRankUpdate& first = *terms[0].first;
  LowRankUpdate sum = first;
  if (terms.size() == 1 && terms[0].second == 1) return sum;
  if (std::ranges::any_of(terms, [](const auto& term) { return term.first->has_magnitude(); }))
    return Invalid("`adapter`: '", Printable(first.module), "' has magnitudes (DoRA), which have no weighted sum");
  if (terms.size() == 1) return sum.scale *= terms[0].second, sum;
  const int64_t matrices = std::max<int64_t>(first.experts, 1);
  int64_t rank = 0;
  for (const auto& [update, weight] : terms) rank += update->rank();
  sum.scale = 1;
  Shape a = first.a.shape(), b = first.b.shape();
  a[0] = b[1] = rank * matrices;
  sum.a = HostTensor({first.a.dtype(), a});
  sum.b = HostTensor({first.b.dtype(), b});
  int64_t at = 0;
  for (const auto& [update, weight] : terms) {
    const auto rows = update->a.bytes();
    const size_t block = rows.size() / static_cast<size_t>(matrices), row = block / static_cast<size_t>(update->rank());
    for (int64_t e = 0; e < matrices; ++e)
      std::ranges::copy(rows.subspan(static_cast<size_t>(e) * block, block),
                        sum.a.mutable_bytes().subspan(static_cast<size_t>(e * rank + at) * row).begin());
    SetColumns(update->b, weight * update->scale, at * matrices, &sum.b);
    at += update->rank();
  }
  return sum;
}

// Returns W + Σ w·(W' - W) for the weights W' of several adapters.
HostTensor SumWhole(const HostTensor& base, const std::vector<std::pair<const HostTensor*, double>>& terms) {
  if (terms.size() == 1 && terms[0].second == 1) return *terms[0].first;
  HostTensor sum = base.Clone();
  for (int64_t i = 0; i < sum.size(); ++i) {
    double value = base.At(i);
    for (const auto& [whole, weight] : terms) value += weight * (whole->At(i) - base.At(i));
    sum.Set(i, value);
  }
  return sum;
}

absl::StatusOr<AdapterPlan> SumAdapters(const std::vector<MatchedAdapter>& adapters,
                                        std::span<const WeightedAdapter> terms, const NameMatcher& names) {
  AdapterPlan plan;
  for (const LowRankTarget& target : names.targets()) {
    std::vector<std::pair<const LowRankUpdate*, double>> updates;
    for (size_t i = 0; i < adapters.size(); ++i) {
      const auto found = adapters[i].updates.find(target.module);
      if (found != adapters[i].updates.end()) updates.emplace_back(&found->second, terms[i].weight);
    }
    if (updates.empty()) continue;
    ASSIGN_OR_RETURN(LowRankUpdate sum, StackUpdates(updates));
    plan.updates.push_back(std::move(sum));
  }
  std::map<std::string, std::vector<std::pair<const HostTensor*, double>>> whole;
  for (size_t i = 0; i < adapters.size(); ++i) {
    for (const auto& [weight, value] : adapters[i].whole) whole[weight].emplace_back(&value, terms[i].weight);
  }
  for (const auto& [weight, values] : whole) plan.whole[weight] = SumWhole(*names.model().Initializer(weight), values);
  return plan;
}

}  // namespace

absl::StatusOr<std::vector<WeightedAdapter>> ParseAdapters(const std::vector<std::string>& texts) {
  std::vector<WeightedAdapter> terms;
  for (const std::string& text : texts) {
    std::vector<WeightedAdapter> sum = ParseSum(text);
    if (sum.empty()) sum = {ParseTerm(text, "=")};
    for (WeightedAdapter& term : sum) {
      if (term.path.empty()) return Invalid("`adapter` ", text, ": expected PATH, PATH=W or PATH*W+PATH*W");
      terms.push_back(std::move(term));
    }
  }
  return terms;
}

absl::Status CheckTrainsOneAdapter(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<WeightedAdapter> adapters, ParseAdapters(config.adapter));
  if (adapters.size() <= 1) return absl::OkStatus();
  return Invalid("`adapter`: training continues one adapter, not the sum of ", adapters.size(),
                 " (export writes a sum as one)");
}

absl::StatusOr<AdapterPlan> ReadAdapters(const std::vector<std::string>& texts, const OnnxModel& model) {
  ASSIGN_OR_RETURN(const std::vector<WeightedAdapter> terms, ParseAdapters(texts));
  const NameMatcher names(model);
  std::vector<MatchedAdapter> adapters;
  for (const WeightedAdapter& term : terms) {
    const std::string prefix = StrCat("`adapter` ", term.path, ": ");
    auto content =
        term.path.ends_with(kOrtAdapterSuffix) ? ReadOrtAdapterContent(term.path) : ReadPeftAdapter(term.path);
    if (!content.ok()) return Annotate(content.status(), prefix);
    auto matched = MatchAdapter(*content, names);
    if (!matched.ok()) return Annotate(matched.status(), prefix);
    adapters.push_back(*std::move(matched));
  }
  return SumAdapters(adapters, terms, names);
}

}  // namespace onnxtrain
