#include "optim/record/telemetry/diagnosis.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_format.h"

namespace onnxtrain {
namespace {

struct Evidence {
  const TrainResult& result;
  const RunConditions& conditions;

  double Share(double seconds) const { return result.seconds > 0 ? seconds / result.seconds : 0; }
  std::string Percent(double seconds) const { return absl::StrFormat("%.0f %%", 100 * Share(seconds)); }
};

struct Rule {
  const char* limit;
  std::function<bool(const Evidence&)> applies;
  std::function<std::string(const Evidence&)> text;
};

// In the order of how much a change gains; the first that applies is the diagnosis.
const Rule kRules[] = {
    {"duration", [](const Evidence& e) { return e.result.seconds < 1; },
     [](const Evidence&) { return std::string("the run took less than a second, which is too short to judge"); }},
    {"compilation", [](const Evidence& e) { return e.Share(e.result.compile_seconds) > 0.5; },
     [](const Evidence& e) {
       return "compiling the programs took " + e.Percent(e.result.compile_seconds) +
              " of the time: the run was short (`epochs`, `max_steps`)";
     }},
    {"evaluation", [](const Evidence& e) { return e.Share(e.result.eval_seconds) > 0.4; },
     [](const Evidence& e) {
       return "evaluations took " + e.Percent(e.result.eval_seconds) +
              " of the time: evaluate less often (`eval_every`)";
     }},
    {"checkpoints", [](const Evidence& e) { return e.Share(e.result.checkpoint_seconds) > 0.1; },
     [](const Evidence& e) {
       return "checkpoints took " + e.Percent(e.result.checkpoint_seconds) +
              " of the time: save less often (`save_every`)";
     }},
    {"overhead",
     [](const Evidence& e) { return e.result.step_median_seconds > 0 && e.result.step_median_seconds < 5e-4; },
     [](const Evidence& e) {
       return absl::StrFormat(
           "updates take %.0f µs, most of it not for arithmetic: larger batches give more samples/s "
           "(`batch_size`)",
           1e6 * e.result.step_median_seconds);
     }},
    {"machine", [](const Evidence& e) { return e.conditions.queued_share > 0.2; },
     [](const Evidence& e) {
       return absl::StrFormat(
           "training was ready but had no CPU for %.0f %% of the time: other processes, or a limit on CPUs, took it "
           "(fewer `threads` wait less)",
           100 * e.conditions.queued_share);
     }},
    {"data", [](const Evidence& e) { return e.Share(e.result.data_seconds) > 0.1; },
     [](const Evidence& e) {
       return "the step waited for data " + e.Percent(e.result.data_seconds) +
              " of the time: use more loader threads (`num_workers`) or a file that is read faster";
     }},
    {"memory", [](const Evidence& e) { return e.conditions.recompute_share > 0.05; },
     [](const Evidence& e) {
       return absl::StrFormat(
           "recomputing activations takes about %.0f %% of the arithmetic: a larger `memory_budget` "
           "or a smaller `micro_batch_size` saves it",
           100 * e.conditions.recompute_share);
     }},
    {"threads",
     [](const Evidence& e) { return e.conditions.threads > 1 && e.conditions.busy_cpus < 0.6 * e.conditions.threads; },
     [](const Evidence& e) {
       return absl::StrFormat("only %.1f of %d threads were busy: larger batches (`batch_size`) use them better",
                              e.conditions.busy_cpus, e.conditions.threads);
     }},
    {"compute", [](const Evidence&) { return true; },
     [](const Evidence& e) {
       return "arithmetic took " + e.Percent(e.result.compute_seconds) + " of the time" +
              (e.conditions.full_precision ? ": bf16 may be faster (`mixed_precision` auto)" : "");
     }},
};

}  // namespace

Diagnosis Diagnose(const TrainResult& result, const RunConditions& conditions) {
  if (result.steps == 0 || result.seconds <= 0) return {};
  const Evidence evidence{result, conditions};
  const Rule* rule = std::ranges::find_if(kRules, [&](const Rule& r) { return r.applies(evidence); });
  return {rule->limit, rule->text(evidence)};
}

}  // namespace onnxtrain
