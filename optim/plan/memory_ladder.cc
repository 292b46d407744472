#include "optim/plan/memory_ladder.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "optim/plan/adapter_init.h"
#include "optim/plan/adapters.h"
#include "optim/step/program/optimize.h"
#include "optim/step/program/programs.h"
#include "optim/step/rules/rule.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

bool MayDivide(const TrainConfig& config, const SessionOptions& options, const BatchPlan& batch) {
  return config.micro_batch_size <= 0 && config.gradient_accumulation_steps == 0 && options.fixed_batch == 0 &&
         !options.tokens.on() && options.micro_batch > 1 && !options.optimizer.in_backward;
}

bool MayUpdateInBackward(const TrainConfig& config, const SessionOptions& options, const BatchPlan& batch) {
  return config.optimizer_in_backward == "auto" && options.micro_batch >= batch.global && !options.deterministic &&
         !options.communicates() && options.step_form != StepForm::kMicroAndApply;
}

bool MayOffload(const TrainConfig& config, const Backend& backend) {
  return config.activation_offloading == "auto" && backend.Offloads();
}

// A way to make updates.
using UpdateForm = void (*)(MemoryRung* rung);

void DivideUpdates(MemoryRung* rung) {
  rung->divides = true;
  rung->fields.emplace_back("micro_batch_size", "1");
}

void UpdateInBackward(MemoryRung* rung) {
  rung->optimizer.in_backward = true;
  rung->fields.emplace_back("optimizer_in_backward", "yes");
}

void Offload(MemoryRung* rung) {
  rung->offloads = true;
  rung->fields.emplace_back("activation_offloading", "yes");
}

void UpdateInBackwardAndOffload(MemoryRung* rung) {
  UpdateInBackward(rung);
  Offload(rung);
}

// Lists the ways other than the configured one, from the one that takes the least time. An update in the backward pass
// takes no more unless the norm of all gradients takes a second pass.
std::vector<UpdateForm> ListUpdateForms(const TrainConfig& config, const Backend& backend,
                                        const SessionOptions& options, const BatchPlan& batch) {
  const bool offloads = MayOffload(config, backend);
  std::vector<UpdateForm> forms;
  if (offloads) forms.push_back(Offload);
  if (MayDivide(config, options, batch)) forms.push_back(DivideUpdates);
  if (!MayUpdateInBackward(config, options, batch)) return forms;
  OptimizerSpec optimizer = options.optimizer;
  optimizer.in_backward = true;
  const bool slow = NeedsNormFirst(optimizer, options.loss_scale.has_value());
  forms.insert(slow ? forms.end() : forms.begin(), UpdateInBackward);
  if (offloads) forms.push_back(UpdateInBackwardAndOffload);
  return forms;
}

// A way to store what an update changes.
struct StateForm {
  const char* field;
  const char* changes;
  // Returns false if the configuration has no such form.
  bool (*set)(MemoryRung* rung);
  bool of_adamw = false;  // replaces adamw, whose learning rate it takes
};

void SetRungField(std::string_view name, std::string value, MemoryRung* rung) {
  std::erase_if(rung->fields, [&](const auto& field) { return field.first == name; });
  rung->fields.emplace_back(name, std::move(value));
}

bool SetRule(const std::string& rule, MemoryRung* rung) {
  rung->optimizer.rule = rule;
  SetRungField("optimizer", rule, rung);
  return true;
}

bool StoreMomentsIn8Bits(MemoryRung* rung) {
  const std::string rule = StrCat(rung->optimizer.rule, "8bit");
  return FindRule({.rule = rule}) != nullptr && SetRule(rule, rung);
}

bool StoreWeightsInBf16(MemoryRung* rung) {
  if (KeepsAverage(rung->optimizer) || rung->optimizer.weight_dtype == DType::kBFloat16) return false;
  rung->optimizer.weight_dtype = DType::kBFloat16;
  SetRungField("weight_dtype", "bf16", rung);
  return true;
}

bool ProjectGradients(MemoryRung* rung) { return SetRule("galore_adamw", rung); }
bool FactorMoments(MemoryRung* rung) { return SetRule("adafactor_unscaled", rung); }

// From the one that changes the least. Each includes the ones before it, but for those of the same field.
constexpr StateForm kStateForms[] = {
    {"optimizer", "moments are rounded to 8 bits", StoreMomentsIn8Bits},
    {"weight_dtype", "weights are rounded to bf16, stochastically", StoreWeightsInBf16},
    {"optimizer", "gradients of matrices are projected to a low rank", ProjectGradients, true},
    {"optimizer",
     "Adafactor: no first moment, a second one of rows and columns, updates clipped to a root mean square of 1, at "
     "adamw's learning rate",
     FactorMoments, true},
};

bool IsAdamW(const OptimizerSpec& optimizer) { return optimizer.rule == "adamw" || optimizer.rule == "adamw8bit"; }

// Returns true if the rule reads the options of rules that the configuration specifies.
bool ReadsOptions(const OptimizerSpec& optimizer, const TrainConfig& config) {
  const std::string_view takes = FindRule(optimizer)->takes;
  return (config.betas.empty() || takes.find("betas") != takes.npos) &&
         (config.eps < 0 || takes.find("eps") != takes.npos);
}

}  // namespace

std::string MemoryRung::Name() const {
  const auto format = [](std::string* out, const auto& field) { StrAppend(out, "`", field.first, "` ", field.second); };
  return fields.empty() ? "as configured" : absl::StrJoin(fields, ", ", format);
}

std::vector<MemoryRung> ListRungs(const TrainConfig& config, const Backend& backend, const SessionOptions& options,
                                  const BatchPlan& batch) {
  std::vector<MemoryRung> rungs;
  const std::vector<UpdateForm> forms = ListUpdateForms(config, backend, options, batch);
  const auto add = [&](const MemoryRung& state) {
    rungs.push_back(state);
    for (const UpdateForm form : forms) form(&rungs.emplace_back(state));
  };
  MemoryRung state{.optimizer = options.optimizer};
  add(state);
  std::map<std::string, std::string> changes;  // by field
  for (const StateForm& form : kStateForms) {
    if (form.of_adamw && !IsAdamW(options.optimizer)) continue;
    if (!form.set(&state) || !ReadsOptions(state.optimizer, config)) continue;
    changes[form.field] = form.changes;
    state.changes.clear();
    for (const auto& [field, text] : changes) StrAppend(&state.changes, state.changes.empty() ? "" : "; ", text);
    add(state);
  }
  return rungs;
}

namespace {

// Returns the rank of adapters on all linear layers, or on all convolutions if there are none; 0 if there are neither.
// Small layers limit it.
int64_t ChooseAdapterRank(const OnnxModel& model) {
  constexpr int64_t kRank = 16;
  std::vector<LowRankTarget> targets = ListAdapterTargets(model);
  std::erase_if(targets, &LowRankTarget::output_layer);
  const auto is_linear = [](const LowRankTarget& target) { return target.kernel.empty(); };
  if (std::ranges::any_of(targets, is_linear)) std::erase_if(targets, std::not_fn(is_linear));
  int64_t rank = targets.empty() ? 0 : kRank;
  for (const LowRankTarget& target : targets) rank = std::min({rank, CountInputs(target), target.outputs});
  return rank;
}

}  // namespace

std::vector<MemoryRung> ListAdapterForms(const TrainConfig& config, const OnnxModel& model) {
  if (HasAdapters(config)) return {};
  const int64_t rank = ChooseAdapterRank(model);
  if (rank < 1) return {};
  const MemoryRung floats{.fields = {{"lora_rank", StrCat(rank)}}, .changes = "the other weights stay as they are"};
  std::vector<MemoryRung> forms = {floats};
  if (config.mixed_precision == "no") {
    SetRungField("mixed_precision", "bf16", &forms.emplace_back(floats));
    forms.back().changes += "; products are computed in bf16";
  }
  SetRungField("quantize_base", "nf4", &forms.emplace_back(floats));
  forms.back().changes = "the other weights of products are rounded to 4 bits";
  return forms;
}

namespace {

// Plans the whole run on one rung.
class RungFitter {
 public:
  RungFitter(const BudgetedModel& model, const MemoryRung& rung, const BatchPlan& batch, SessionOptions* options)
      : model_(model), rung_(rung), batch_(batch), options_(*options) {
    options_.optimizer = rung.optimizer;
    options_.recompute.offload |= rung.offloads;
  }

  // Returns the micro-batches of the plan that fits.
  absl::StatusOr<BatchPlan> Fit(int64_t samples) {
    if (!rung_.divides) {
      RETURN_IF_ERROR(Plan(options_.micro_batch));
      return batch_;
    }
    // This size fits without a budget; with one, programs are counted differently.
    ASSIGN_OR_RETURN(const int64_t most, LargestMicroBatch(model_.models, model_.backend, options_,
                                                           std::min(batch_.global, samples), batch_.global));
    BatchPlan fit{.global = batch_.global, .accumulation = CeilDiv(batch_.global, std::max<int64_t>(1, most))};
    for (;; ++fit.accumulation) {
      fit.micro = CeilDiv(fit.global, fit.accumulation);
      const absl::Status planned = Plan(fit.micro);
      if (planned.ok()) break;
      if (fit.micro == 1) return planned;
    }
    options_.micro_batch = fit.micro;
    model_.models->KeepSize(fit.micro);  // the other sizes were only planned
    return fit;
  }

 private:
  absl::Status Plan(int64_t micro) {
    options_.recompute.reserved = 0;
    const auto memory = PlannedMemory(model_.models, model_.backend, options_, micro, batch_.global);
    if (memory.ok()) options_.recompute.reserved = memory->reserved;
    return memory.status();
  }

  const BudgetedModel& model_;
  const MemoryRung& rung_;
  const BatchPlan& batch_;
  SessionOptions& options_;
};

SessionOptions OptionsOn(const MemoryRung& rung, SessionOptions options) {
  options.optimizer = rung.optimizer;
  options.recompute.offload |= rung.offloads;
  if (rung.divides) options.micro_batch = 1;
  return options;
}

// Returns true if what a rung holds besides its programs exceeds the budget, which takes no plan to know.
bool HoldsTooMuch(const MemoryRung& rung, const BudgetedModel& model, const SessionOptions& given) {
  SessionOptions options = OptionsOn(rung, given);
  options.plan_only = true;
  const auto session = Session::Create(model.models, &model.backend, std::move(options));
  return session.ok() && (*session)->memory().total() > PlannableBytes(given.recompute.memory_budget);
}

std::string DescribeFit(const MemoryRung& rung, const BatchPlan& fit, int64_t given) {
  if (rung.divides)
    return StrCat("micro-batches of ", fit.micro, ": those of ", given,
                  " do not fit the budget (`micro_batch_size`, `memory_budget`)");
  return rung.fields.empty() ? "" : StrCat(rung.Name(), ": the first of the ladder that fits the `memory_budget`");
}

}  // namespace

absl::StatusOr<std::string> FitBudget(const TrainConfig& config, const BudgetedModel& model, int64_t samples,
                                      SessionOptions* options, BatchPlan* batch) {
  const SessionOptions given = *options;
  std::vector<MemoryRung> rungs = ListRungs(config, model.backend, given, *batch);
  if (!config.allow_lossy_memory) std::erase_if(rungs, [](const MemoryRung& r) { return !r.changes.empty(); });
  for (const MemoryRung& rung : rungs) {
    if (HoldsTooMuch(rung, model, given)) continue;
    *options = given;
    const auto fit = RungFitter(model, rung, *batch, options).Fit(samples);
    if (fit.ok()) {
      *batch = *fit;
      return DescribeFit(rung, *fit, given.micro_batch);
    }
    if (!LeastBudget(fit.status())) return fit.status();
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const MemoryRung& rung : rungs) {
    ASSIGN_OR_RETURN(const int64_t of_rung, FindLeastBudget(model, OptionsOn(rung, given), batch->global));
    least = std::min(least, of_rung);
  }
  const bool divides = std::ranges::any_of(rungs, &MemoryRung::divides);
  return RefuseBudget(given.recompute.memory_budget, least, divides ? 1 : given.micro_batch);
}

namespace {

// Bytes per second to and from a file, of a disk that its users could have.
constexpr double kFileRate = 1e9;

// Returns the time of an update by the programs of a session.
double UpdateSeconds(const Session& session, int64_t accumulation) {
  double total = 0;
  for (const ProgramProfile& profile : session.Profile()) {
    const Graph& graph = profile.program->graph();
    double seconds = 2 * static_cast<double>(profile.program->memory().offloaded) / kFileRate;
    for (const Node& node : graph.nodes()) seconds += NodeSeconds(graph, node);
    const bool repeated = profile.name == kProgramNames[static_cast<int>(ProgramKind::kMicroNext)];
    total += seconds * static_cast<double>(repeated ? accumulation - 1 : 1);
  }
  return total;
}

}  // namespace

absl::StatusOr<RungPlan> PlanRung(const MemoryRung& rung, const BudgetedModel& model, const SessionOptions& given,
                                  const BatchPlan& batch) {
  SessionOptions options = OptionsOn(rung, given);
  RungPlan plan{.rung = rung, .batch = {batch.global, options.micro_batch, CeilDiv(batch.global, options.micro_batch)}};
  const bool offload = options.recompute.offload;
  options.recompute = {.mode = RecomputeMode::kNone};
  {
    ASSIGN_OR_RETURN(const auto keeping, PlanSession(model, options, batch.global));
    plan.kept = keeping->memory();
    plan.kept_seconds = UpdateSeconds(*keeping, plan.batch.accumulation);
  }
  options.recompute = {.mode = RecomputeMode::kAuto, .offload = offload};
  ASSIGN_OR_RETURN(const LeastPlan least, PlanLeast(model, options, batch.global));
  plan.least_budget = least.budget;
  plan.least = least.session->memory();
  plan.least_seconds = UpdateSeconds(*least.session, plan.batch.accumulation);
  return plan;
}

absl::StatusOr<std::vector<RungPlan>> PlanLadder(const TrainConfig& config, const BudgetedModel& model,
                                                 const SessionOptions& options, const BatchPlan& batch) {
  std::vector<RungPlan> plans;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const MemoryRung& rung : ListRungs(config, model.backend, options, batch)) {
    ASSIGN_OR_RETURN(RungPlan plan, PlanRung(rung, model, options, batch));
    plan.saves = plan.least_budget < least;
    least = std::min(least, plan.least_budget);
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace onnxtrain
