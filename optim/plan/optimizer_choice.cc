#include "optim/plan/optimizer_choice.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/onnx/read/file.h"
#include "optim/config/training_settings.h"
#include "optim/config/unused_fields.h"
#include "optim/config/weight_globs.h"
#include "optim/step/fixed_tables.h"
#include "optim/step/groups.h"
#include "optim/step/onnx_functions.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

struct Moments {
  double count = 0;                                     // sampled elements
  double mean = 0, std = 0, kurtosis = 0, largest = 0;  // largest: max |x - mean| / std
};

Moments ComputeMoments(const HostTensor& t) {
  // Large tensors are sampled evenly.
  constexpr int64_t kEnough = 100'003;
  const int64_t step = std::max<int64_t>(1, t.size() / kEnough);
  const auto n = static_cast<double>((t.size() + step - 1) / step);
  Moments m{.count = n};
  for (int64_t i = 0; i < t.size(); i += step) m.mean += t.At(i) / n;
  double second = 0, fourth = 0, most = 0;
  for (int64_t i = 0; i < t.size(); i += step) {
    const double d = t.At(i) - m.mean;
    second += d * d / n;
    fourth += d * d * d * d / n;
    most = std::max(most, std::abs(d));
  }
  m.std = std::sqrt(second);
  if (m.std > 0) m.kurtosis = fourth / (second * second), m.largest = most / m.std;
  return m;
}

// The tolerance in standard errors of an estimate from n draws; a model has many tensors, each of which must pass.
constexpr double kSigmas = 5;

// Returns true for a uniform distribution: kurtosis 1.8 (standard error about 0.9/√n), largest deviation √3.
bool LooksUniform(const Moments& m, double n) {
  return std::abs(m.kurtosis - 1.8) < kSigmas * 0.9 / std::sqrt(n) + 0.02 && m.largest < 1.9;
}

// Returns true for a normal distribution: kurtosis 3 (standard error √(24/n)), or about 2.4 if truncated at two
// standard deviations, as TensorFlow's initializers do.
bool LooksNormal(const Moments& m, double n) {
  const double spread = kSigmas * std::sqrt(24 / n);
  return std::abs(m.kurtosis - 3) < spread + 0.02 || (std::abs(m.kurtosis - 2.37) < spread + 0.02 && m.largest < 2.4);
}

bool LooksInitialized(const HostTensor& t) {
  const Moments m = ComputeMoments(t);
  if (!std::isfinite(m.std)) return false;
  if (m.std == 0) return true;
  const double n = m.count;
  const bool centred = std::abs(m.mean) < kSigmas * m.std / std::sqrt(n);
  return centred && (LooksUniform(m, n) || LooksNormal(m, n));
}

}  // namespace

ModelOrigin ClassifyWeightOrigin(const std::vector<NamedWeight>& weights) {
  double drawn = 0, other = 0;
  for (const NamedWeight& w : weights) {
    // Running statistics are no evidence: an exporter that traces a new model in training mode changes them.
    if (!IsFloat(w.value.dtype()) || w.statistics) continue;
    constexpr int64_t kEnough = 200;
    // Computed tables are no evidence either.
    if (w.value.type().rank() < 2 || w.value.size() < kEnough || IsSinusoidTable(w.value)) continue;
    (LooksInitialized(w.value) ? drawn : other) += static_cast<double>(w.value.size());
    ReleaseMappedPages(w.value.bytes());
  }
  if (drawn + other == 0) return {false, "no weight is large enough to tell"};
  const int percent = static_cast<int>(std::lround(100 * other / (drawn + other)));
  if (other > drawn) return {true, StrCat(percent, "% of the weights are not distributed as initializers draw them")};
  return {false, StrCat(100 - percent, "% of the weights are distributed as initializers draw them")};
}

namespace {

struct GlobRate {
  std::string glob;
  double lr = 0;
};

struct SpecifiedRates {
  std::string base = "auto";
  std::vector<GlobRate> globs;
};

absl::StatusOr<double> Rate(const std::string& text) {
  const auto lr = ParseNumber(text);
  if (!lr.ok() || *lr <= 0) return Invalid("`lr`: expected auto, a number above 0 or GLOB=X, got '", text, "'");
  return *lr;
}

absl::StatusOr<SpecifiedRates> Read(const std::vector<std::string>& given) {
  SpecifiedRates rates;
  bool base = false;
  for (const std::string& text : given) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos) {
      if (base && text != rates.base) return Invalid("`lr`: given twice, ", rates.base, " and ", text);
      base = true;
      rates.base = text;
      continue;
    }
    GlobRate rate{.glob = text.substr(0, equals)};
    if (rate.glob.empty()) return Invalid("`lr`: expected auto, a number above 0 or GLOB=X, got '", text, "'");
    ASSIGN_OR_RETURN(rate.lr, Rate(text.substr(equals + 1)));
    rates.globs.push_back(std::move(rate));
  }
  return rates;
}

std::string Names(std::vector<std::string> names) {
  constexpr size_t kMost = 8;
  const size_t all = names.size();
  names.resize(std::min(all, kMost));
  return StrCat(absl::StrJoin(names, ", "), all > kMost ? StrCat(", … (", all, " in all)") : "");
}

class Chooser {
 public:
  Chooser(const PreparedModel& prepared, RateChoice* choice) : prepared_(prepared), choice_(*choice) {}

  void Head(const std::vector<std::string>& fresh, bool trained) {
    if (fresh.empty()) return;
    if (!trained)
      return choice_.lines.push_back(StrCat(Names(fresh), ": the same, since the rest looks untrained too"));
    Set(fresh, choice_.lr * kHeadFactor,
        StrCat("a new head, ", FormatNumber(kHeadFactor), "× the rate of the rest; `lr` '", fresh[0], "=X'"));
  }

  absl::Status Globs(const std::vector<GlobRate>& globs) {
    for (const GlobRate& rate : globs) {
      WeightGlobs glob("lr", {rate.glob});
      std::vector<std::string> names;
      for (const WeightDecision& w : prepared_.weights) {
        if (glob.Match(w) != nullptr && w.trained) names.push_back(w.name);
      }
      RETURN_IF_ERROR(glob.CheckAllMatched());
      if (names.empty())
        return Invalid("`lr` ", rate.glob, "=", rate.lr,
                       ": has no effect: none of the weights that it matches is trained");
      Set(names, rate.lr, StrCat("`lr` ", rate.glob, "=", FormatNumber(rate.lr)));
    }
    return absl::OkStatus();
  }

 private:
  void Set(const std::vector<std::string>& names, double lr, const std::string& why) {
    for (const std::string& name : names) choice_.factors[name] = lr / choice_.lr;
    choice_.lines.push_back(StrCat(FormatNumber(lr), " for ", Names(names), " (", why, ")"));
  }

  const PreparedModel& prepared_;
  RateChoice& choice_;
};

}  // namespace

absl::Status CheckRates(const std::vector<std::string>& lr) {
  ASSIGN_OR_RETURN(const SpecifiedRates rates, Read(lr));
  return rates.base == "auto" ? absl::OkStatus() : Rate(rates.base).status();
}

bool SpecifiesBaseRate(const std::vector<std::string>& lr) {
  return std::ranges::any_of(
      lr, [](const std::string& text) { return text != "auto" && text.find('=') == std::string::npos; });
}

std::vector<std::string> ReplaceBaseRate(std::vector<std::string> rates, double lr) {
  std::erase_if(rates, [](const std::string& rate) { return rate.find('=') == std::string::npos; });
  rates.insert(rates.begin(), StrCat(lr));
  return rates;
}

double DefaultRate(bool pretrained, bool transformer) { return !pretrained ? 1e-3 : transformer ? 2e-5 : 1e-4; }

bool IsTransformer(const Graph& graph) {
  const auto count = [&](std::string_view op) {
    return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; });
  };
  return count("Attention") > 0 || (count("LayerNorm") + count("RmsNorm") > 1 && count("Softmax") > 0);
}

namespace {

constexpr double kAdapterRate = 2e-4;
// Rates for preferences: the default of TRL's DPOConfig, and the rate in the LoRA example of its script dpo.py.
constexpr double kPreferenceRate = 1e-6, kPreferenceAdapterRate = 5e-6;

bool TrainsAdapters(const PreparedModel& prepared) {
  return std::ranges::any_of(prepared.weights, [](const WeightDecision& w) { return w.reason == WeightReason::kBase; });
}

}  // namespace

absl::StatusOr<RateChoice> ChooseRates(const std::vector<std::string>& given, const PreparedModel& prepared,
                                       const ModelOrigin& origin, const std::vector<std::string>& fresh,
                                       const OptimizerSpec& optimizer, double scale) {
  ASSIGN_OR_RETURN(SpecifiedRates rates, Read(given));
  for (GlobRate& rate : rates.globs) rate.lr *= scale;
  RateChoice choice;
  const bool adapters = TrainsAdapters(prepared);
  if (rates.base != "auto") {
    ASSIGN_OR_RETURN(choice.lr, Rate(rates.base));
  } else {
    const bool transformer = IsTransformer(prepared.model.graph);
    const double rule = FindRule(optimizer)->defaults.lr;
    const bool pairs = !prepared.loss.terms.empty() && prepared.loss.leading().function->pairs;
    choice.lr = pairs      ? adapters ? kPreferenceAdapterRate : kPreferenceRate
                : adapters ? kAdapterRate
                           : DefaultRate(origin.trained, transformer);
    choice.lr *= rule > 0 ? rule / DefaultRate(false, false) : 1;
    choice.why =
        StrCat(" for ",
               adapters ? "adapters"
                        : StrCat(origin.trained ? (transformer ? "a pre-trained transformer" : "a pre-trained model")
                                                : "random weights",
                                 ": ", origin.why),
               rule > 0 ? StrCat("; ", optimizer.rule, " takes ", FormatNumber(rule), " where adamw takes ",
                                 FormatNumber(DefaultRate(false, false)))
                        : "");
  }
  choice.lr *= scale;
  Chooser chooser(prepared, &choice);
  if (!adapters) chooser.Head(fresh, origin.trained);
  RETURN_IF_ERROR(chooser.Globs(rates.globs));
  std::erase_if(choice.factors, [](const auto& factor) { return factor.second == 1; });
  return choice;
}

RateScale ScaleForBatch(const std::string& how, const std::string& rule, int64_t batch, int64_t base) {
  if (how == "none") return {};
  const bool linear = how == "linear" || (how == "auto" && (rule == "sgd" || rule == "lars"));
  const double ratio = static_cast<double>(batch) / static_cast<double>(base);
  return {linear ? ratio : std::sqrt(ratio), linear ? StrCat(batch, "/", base) : StrCat("√(", batch, "/", base, ")")};
}

absl::Status DecayByLayer(const TrainConfig& config, const PreparedModel& prepared, RateChoice* choice) {
  const double decay = config.layer_lr_decay;
  if (decay == 1) return absl::OkStatus();
  const std::vector<Layer> layers = ListLayers(prepared);
  RETURN_IF_ERROR(RefuseUnused(config, {.has_layers = layers.size() > 1}));
  double factor = 1;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer, factor *= decay) {
    for (const std::string& name : layer->weights) choice->factors.emplace(name, 1).first->second *= factor;
  }
  std::erase_if(choice->factors, [](const auto& f) { return f.second == 1; });
  choice->lines.push_back(StrCat("falls by ", FormatNumber(decay), " a layer, from ", layers.back().name, " to ",
                                 FormatNumber(choice->lr * factor / decay), " at ", layers.front().name, ": ",
                                 layers.size(), " layers (`layer_lr_decay`)"));
  return absl::OkStatus();
}

std::vector<NamedWeight> CollectWeights(const ImportedModel& model, const std::vector<std::string>& without) {
  std::vector<NamedWeight> weights;
  for (const ImportedWeight& w : model.weights) {
    if (std::find(without.begin(), without.end(), w.name) != without.end()) continue;
    const GraphInput* input = model.graph.FindInput(w.name);
    weights.push_back({w.name, w.value, input != nullptr && input->kind == InputKind::kState});
  }
  return weights;
}

namespace {

double NumberOrRuleDefault(double x) { return x < 0 ? kRuleDefault : x; }

// The default of 1 applies only if no other clipping is configured.
double MaxGradNorm(const TrainConfig& c) {
  if (c.max_grad_norm >= 0) return c.max_grad_norm;
  return c.clip_value > 0 || c.agc > 0 ? 0 : 1;
}

}  // namespace

OptimizerSpec MakeOptimizer(const TrainConfig& c) {
  const bool betas = c.betas.size() == 2;
  return Resolved({.rule = c.optimizer,
                   .momentum = NumberOrRuleDefault(c.momentum),
                   .dampening = c.dampening,
                   .nesterov = c.nesterov,
                   .beta1 = betas ? c.betas[0] : kRuleDefault,
                   .beta2 = betas ? c.betas[1] : kRuleDefault,
                   .eps = NumberOrRuleDefault(c.eps),
                   .galore = {c.galore_rank, c.galore_update_proj_gap, c.galore_scale},
                   .weight_decay = c.weight_decay,
                   .no_decay = c.no_decay,
                   .max_grad_norm = MaxGradNorm(c),
                   .clip_value = c.clip_value,
                   .agc = c.agc,
                   .in_backward = c.optimizer_in_backward == "yes",
                   .ema_decay = c.ema_decay,
                   .weight_dtype = c.weight_dtype == "bf16" ? DType::kBFloat16 : DType::kFloat32});
}

namespace {

// Loads the model that a field "onnx:FILE" names.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadRuleModel(const std::string& file, const OnnxModel& model,
                                                               const std::optional<TrainingInfo>& info) {
  if (file != kOwnTrainingInfo) return OnnxModel::Load(file);
  if (!info.has_value() || info->rule.empty())
    return Invalid(model.path(), ": ", info.has_value() ? info->problem : "has no training_info");
  return OnnxModel::LoadBytes(std::as_bytes(std::span(info->rule)), StrCat(model.path(), " (training_info)"));
}

bool TakesModelsRule(const TrainConfig& c, const std::optional<TrainingInfo>& info) {
  if (!info.has_value() || info->rule.empty()) return false;
  return std::ranges::none_of(std::array{"optimizer", "momentum", "dampening", "nesterov", "betas", "eps"},
                              [&](const char* field) { return IsSpecified(c, field); });
}

}  // namespace

absl::StatusOr<OptimizerSpec> LoadOptimizer(const TrainConfig& config, const OnnxModel& model,
                                            const std::optional<TrainingInfo>& info) {
  OptimizerSpec spec = MakeOptimizer(config);
  if (TakesModelsRule(config, info)) {
    spec.rule = StrCat("onnx:", kOwnTrainingInfo);
    if (config.max_grad_norm < 0) spec.max_grad_norm = 0;
  }
  if (!NamesOnnxRule(spec.rule)) return spec;
  const std::string file = spec.rule.substr(spec.rule.find(':') + 1);
  if (file.empty()) return Invalid("`optimizer`: expected onnx:FILE");
  auto rule_model = LoadRuleModel(file, model, info);
  if (!rule_model.ok()) return Annotate(rule_model.status(), "`optimizer`: ");
  auto rule = OnnxRule::Make(*std::move(rule_model), spec.rule);
  if (!rule.ok()) return Annotate(rule.status(), "`optimizer`: ");
  spec.onnx_rule = *std::move(rule);
  return spec;
}

absl::StatusOr<ScheduleSpec> MakeSchedule(const TrainConfig& config) {
  auto schedule = ParseSchedule(config.lr_scheduler);
  if (!schedule.ok()) return Annotate(schedule.status(), "`lr_scheduler`: ");
  schedule->warmup = config.warmup;
  schedule->min_lr = config.min_lr;
  return schedule;
}

namespace {

// Describes to users how the model's training_info affects the optimizer.
std::vector<std::string> DescribeTrainingInfo(const TrainConfig& config, const OnnxModel& model,
                                              const std::optional<TrainingInfo>& info, const OptimizerSpec& optimizer) {
  if (const std::string taken = DescribeTrainingSettings(config, model); !taken.empty())
    return {StrCat("the model's training_info: ", taken)};
  if (!info.has_value()) return {};
  if (!info->problem.empty()) return {StrCat("the model's training_info is not taken over: ", info->problem)};
  const bool taken = optimizer.rule == StrCat("onnx:", kOwnTrainingInfo);
  return {StrCat("the model's training_info: ", info->optimizer, taken ? " (`optimizer`)" : " is not taken over")};
}

// Uses the rate of the training_info only together with its rule.
std::vector<std::string> GetRates(const TrainConfig& config, const std::vector<std::string>& rates,
                                  const std::optional<TrainingInfo>& info, const OptimizerSpec& optimizer) {
  const bool own = optimizer.rule == StrCat("onnx:", kOwnTrainingInfo) && !IsSpecified(config, "lr");
  if (!own || !info.has_value() || !info->lr.has_value() || *info->lr <= 0) return rates;
  return {StrCat(*info->lr)};
}

}  // namespace

absl::StatusOr<OptimizerChoice> ChooseOptimizer(const TrainConfig& config, const std::vector<std::string>& rates,
                                                const OnnxModel& model, const PreparedModel& prepared,
                                                const std::vector<std::string>& fresh, int64_t global_batch,
                                                int64_t total_steps) {
  OptimizerChoice choice{.rates = rates};
  ASSIGN_OR_RETURN(const std::optional<TrainingInfo> info, ReadTrainingInfo(model));
  ASSIGN_OR_RETURN(choice.spec, LoadOptimizer(config, model, info));
  ASSIGN_OR_RETURN(choice.schedule, MakeSchedule(config));
  choice.schedule.total_steps = total_steps;
  choice.origin = ClassifyWeightOrigin(CollectWeights(prepared.model, fresh));
  const RateScale scale = ScaleForBatch(config.lr_scale, choice.spec.rule, global_batch, config.lr_scale_base);
  ASSIGN_OR_RETURN(RateChoice chosen, ChooseRates(GetRates(config, rates, info, choice.spec), prepared, choice.origin,
                                                  fresh, choice.spec, scale.factor));
  RETURN_IF_ERROR(DecayByLayer(config, prepared, &chosen));
  choice.spec.lr = chosen.lr;
  choice.spec.lr_factors = std::move(chosen.factors);
  choice.unscaled_lr = chosen.lr / scale.factor;
  choice.rate_text = chosen.why;
  if (scale.factor != 1)
    StrAppend(&choice.rate_text, "; ", FormatNumber(choice.unscaled_lr), " × ", scale.text, " = ",
              FormatNumber(chosen.lr));
  choice.rate_lines = DescribeTrainingInfo(config, model, info, choice.spec);
  choice.rate_lines.insert(choice.rate_lines.end(), chosen.lines.begin(), chosen.lines.end());
  if (choice.schedule.min_lr > choice.spec.lr)
    return Invalid("`min_lr` ", choice.schedule.min_lr, " is above `lr` ", choice.spec.lr);
  return choice;
}

}  // namespace onnxtrain
