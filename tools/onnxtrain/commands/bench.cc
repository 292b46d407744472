// onnxtrain bench: times a training step on synthetic data, splits the time by operator, and compares its matrix
// products with the rate that the machine reaches on them alone. With --data: times the loader (bench_data.cc).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/run_memory.h"
#include "optim/plan/training_run.h"
#include "optim/record/telemetry/profile.h"
#include "optim/record/telemetry/summary.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/ladder.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWarmSteps = 3, kMinSteps = 10, kMaxSteps = 2000;
constexpr double kSeconds = 3, kProbeSeconds = 0.1, kProgramSeconds = 1;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Setup {
  TrainingRun trial;
  GlobalBatch global_batch;
};

struct Result {
  double first_step = 0;        // seconds from opening the file to the end of the first step
  double compile = 0;           // the part of it that builds programs
  std::vector<double> seconds;  // per step, sorted
  int64_t planned = 0, peak = 0;
  MemoryUse arena;       // arena of the largest program
  int64_t repeated = 0;  // nodes that the programs recompute
  std::vector<OperatorTime> operators;
  std::vector<ProductRate> products;
  ProductWork alone;  // the products of a step, measured alone
  double bandwidth = 0;

  // Returns a quantile of the step times, interpolated.
  double At(double quantile) const {
    const double place = quantile * static_cast<double>(seconds.size() - 1);
    const auto below = static_cast<size_t>(place);
    return std::lerp(seconds[below], seconds[std::min(below + 1, seconds.size() - 1)],
                     place - static_cast<double>(below));
  }
  double median() const { return At(0.5); }
};

absl::StatusOr<Setup> SetUp(const TrainConfig& config) {
  Setup s;
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(s.trial,
                   PrepareTraining(config, model, LoadBackend, {.samples = {.one_batch = true}, .plans = true}));
  SessionOptions& options = s.trial.session_options;
  options.caller_bytes = BatchBytes(s.trial.train, s.trial.batch.global);
  if (config.memory_budget > 0) RETURN_IF_ERROR(TakeFittingRung(s.trial.batch.global, &options, &s.trial));
  options.plan_only = false;
  options.schedule = {};
  options.optimizer.lr = 1e-6;  // many steps on one batch must stay finite
  for (const std::string& line : s.trial.data.surgery) LogInfo(config, line);
  ASSIGN_OR_RETURN(s.global_batch, ReadGlobalBatch(s.trial.train, s.trial.batch.global));
  return s;
}

absl::Status StepAndWait(const Setup& s, Session& session) {
  RETURN_IF_ERROR(session.Step(s.global_batch));
  return s.trial.backend->Synchronize();
}

absl::Status TimeSteps(const TrainConfig& config, const Setup& s, Session& session, std::vector<double>* seconds) {
  for (int i = 0; i < kWarmSteps; ++i) RETURN_IF_ERROR(StepAndWait(s, session));
  const bool fixed = config.max_steps > 0;
  const int64_t most = fixed ? config.max_steps : kMaxSteps, fewest = fixed ? config.max_steps : kMinSteps;
  for (const double end = Now() + kSeconds;
       std::ssize(*seconds) < fewest || (Now() < end && std::ssize(*seconds) < most);) {
    const double begin = Now();
    RETURN_IF_ERROR(StepAndWait(s, session));
    seconds->push_back(Now() - begin);
  }
  std::sort(seconds->begin(), seconds->end());
  return absl::OkStatus();
}

MemoryUse LargestArena(const Session& session) {
  MemoryUse largest;
  for (const ProgramProfile& p : session.Profile()) {
    if (p.program->memory().arena >= largest.arena) largest = p.program->memory();
  }
  return largest;
}

absl::Status MeasureSteps(const TrainConfig& config, const Setup& s, double begin, int64_t resident, Result* result) {
  ASSIGN_OR_RETURN(const auto session,
                   Session::Create(s.trial.data.models, s.trial.backend.get(), s.trial.session_options));
  RETURN_IF_ERROR(StepAndWait(s, *session));
  result->first_step = Now() - begin;
  result->compile = session->compile_seconds();
  RETURN_IF_ERROR(TimeSteps(config, s, *session, &result->seconds));
  result->planned = session->planned_peak_bytes();
  result->peak = PeakResidentBytes() - resident;
  result->arena = LargestArena(*session);
  for (const ProgramProfile& p : session->Profile()) result->repeated = std::max(result->repeated, p.repeated);
  return absl::OkStatus();
}

// Returns the differences of times between `before` and `after`, per update.
std::vector<OperatorTime> Since(const std::vector<OperatorTime>& before, std::vector<OperatorTime> after,
                                int64_t updates) {
  for (OperatorTime& t : after) {
    const auto was = std::find_if(before.begin(), before.end(), [&](const OperatorTime& b) { return b.op == t.op; });
    const OperatorTime none, &old = was == before.end() ? none : *was;
    t.seconds = (t.seconds - old.seconds) / static_cast<double>(updates);
    t.flops = (t.flops - old.flops) / static_cast<double>(updates);
    t.bytes = (t.bytes - old.bytes) / static_cast<double>(updates);
  }
  std::erase_if(after, [](const OperatorTime& t) { return t.seconds == 0; });  // ran before only
  std::sort(after.begin(), after.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return after;
}

// Uses a separate session, since timing every node slows small steps down.
absl::Status MeasureOperators(const Setup& s, Result* result) {
  SessionOptions options = s.trial.session_options;
  options.time_nodes = true;
  ASSIGN_OR_RETURN(const auto session, Session::Create(s.trial.data.models, s.trial.backend.get(), options));
  for (int i = 0; i < kWarmSteps; ++i) RETURN_IF_ERROR(StepAndWait(s, *session));  // warms up memory
  const std::vector<OperatorTime> warm = OperatorTimes(session->Profile(), 1);
  int64_t updates = 0;
  for (const double end = Now() + kSeconds / 2; updates < 3 || (Now() < end && updates < kMaxSteps); ++updates) {
    RETURN_IF_ERROR(StepAndWait(s, *session));
  }
  result->operators = Since(warm, OperatorTimes(session->Profile(), 1), updates);
  ASSIGN_OR_RETURN(result->products, ProbeProducts(*s.trial.backend, session->Profile(), kProbeSeconds));
  ASSIGN_OR_RETURN(result->alone,
                   ProbeProductsTogether(*s.trial.backend, session->Profile(), updates + kWarmSteps, kProgramSeconds));
  // A step contains its products, so the fastest step bounds their time if the probe was disturbed.
  result->alone.seconds = std::min(result->alone.seconds, result->seconds.front());
  return absl::OkStatus();
}

std::string OperatorTable(const Result& r) {
  double total = 0;
  for (const OperatorTime& t : r.operators) total += t.seconds;
  std::string text =
      absl::StrFormat("  %-24s %6s %10s %7s %9s %9s\n", "operator", "nodes", "ms", "share", "GF/s", "GB/s");
  for (const OperatorTime& t : r.operators) {
    text += absl::StrFormat("  %-24s %6d %10.3f %6.1f%% %9.1f %9.1f\n", t.op, t.nodes, t.seconds * 1e3,
                            100 * t.seconds / total, t.flops / t.seconds / 1e9, t.bytes / t.seconds / 1e9);
  }
  return text;
}

std::string ProductTable(const Result& r) {
  constexpr size_t kMost = 12;
  std::string text = absl::StrFormat("  %6s %9s %9s  %s\n", "nodes", "GF/s", "alone", "product");
  for (size_t i = 0; i < std::min(kMost, r.products.size()); ++i) {
    const ProductRate& p = r.products[i];
    const std::string alone = p.seconds ? absl::StrFormat("%.1f", p.flops / *p.seconds / 1e9) : "-";
    text += absl::StrFormat("  %6d %9.1f %9s  %s\n", p.nodes, p.flops / p.in_step / 1e9, alone, p.text);
  }
  if (r.products.size() > kMost) StrAppend(&text, "  … and ", r.products.size() - kMost, " more\n");
  return text;
}

std::string StepLine(const Setup& s, const Result& r) {
  const double samples = static_cast<double>(s.trial.batch.global) / r.median();
  return absl::StrFormat("%.3f ms (10%% %.3f, 90%% %.3f, %d steps), batch %d: %s samples/s", r.median() * 1e3,
                         r.At(0.1) * 1e3, r.At(0.9) * 1e3, r.seconds.size(), s.trial.batch.global, FormatRate(samples));
}

std::string Page(const Setup& s, const Result& r) {
  std::string text = PageRow("model", DescribeModel(*s.trial.data.models->model()));
  text += PageRow("backend", DescribeBackend(*s.trial.backend));
  if (!s.trial.precision.why.empty()) text += PageRow("precision", s.trial.precision.why);
  text += PageRow("step", StepLine(s, r));
  text += PageRow("start",
                  absl::StrFormat("%.2f s from opening the file to the end of the first step, %.2f s of it compiling",
                                  r.first_step, r.compile));
  if (!r.products.empty()) {
    text +=
        PageRow("products",
                absl::StrFormat("%.3f GF a step: %.1f GF/s of the step's time; a program of them alone reaches %.1f "
                                "GF/s and would take %.0f%% of the step",
                                r.alone.flops / 1e9, r.alone.flops / r.median() / 1e9, r.alone.rate() / 1e9,
                                100 * r.alone.seconds / r.median()));
  }
  if (r.bandwidth > 0) text += PageRow("bandwidth", absl::StrFormat("%.1f GB/s (triad)", r.bandwidth / 1e9));
  text += PageRow(
      "memory", absl::StrFormat("arena %s (%.3f × its lower bound), planned %s, process %s above its start",
                                FormatBytes(static_cast<double>(r.arena.arena)),
                                static_cast<double>(r.arena.arena) / std::max<double>(1, r.arena.lower_bound),
                                FormatBytes(static_cast<double>(r.planned)), FormatBytes(static_cast<double>(r.peak))));
  for (const std::string& line : BudgetChoices(s.trial)) text += PageRow("budget", line);
  if (r.repeated > 0) text += PageRow("recompute", StrCat(r.repeated, " nodes recomputed"));
  return text + (r.operators.empty() ? "" : OperatorTable(r)) + (r.products.empty() ? "" : ProductTable(r));
}

Json ToJson(const TrainConfig& config, const Setup& s, const Result& r) {
  Json json = {{"model", config.model},
               {"backend", s.trial.backend->name()},
               {"device", s.trial.backend->device()},
               {"description", s.trial.backend->description()},
               {"threads", s.trial.compute_threads()},
               {"precision", s.trial.precision.name},
               {"batch", s.trial.batch.global},
               {"micro_batch", s.trial.batch.micro},
               {"steps", r.seconds.size()},
               {"median_seconds", r.median()},
               {"seconds", r.seconds},
               {"first_step_seconds", r.first_step},
               {"compile_seconds", r.compile},
               {"product_flops", r.alone.flops},
               {"products_alone_seconds", r.alone.seconds},
               {"probed_flops_per_second", r.alone.rate()},
               {"triad_bytes_per_second", r.bandwidth},
               {"arena_bytes", r.arena.arena},
               {"arena_lower_bound_bytes", r.arena.lower_bound},
               {"scratch_bytes", r.arena.scratch},
               {"repeated_nodes", r.repeated},
               {"budget_choices", BudgetChoices(s.trial)},
               {"planned_peak_bytes", r.planned},
               {"process_peak_bytes", r.peak},
               {"operators", Json::array()},
               {"products", Json::array()}};
  for (const OperatorTime& t : r.operators) {
    json["operators"].push_back(
        {{"op", t.op}, {"nodes", t.nodes}, {"seconds", t.seconds}, {"flops", t.flops}, {"bytes", t.bytes}});
  }
  for (const ProductRate& p : r.products) {
    json["products"].push_back({{"product", p.text},
                                {"nodes", p.nodes},
                                {"flops", p.flops},
                                {"seconds_alone", p.seconds ? Json(*p.seconds) : Json()},
                                {"seconds_in_step", p.in_step}});
  }
  return json;
}

}  // namespace

absl::StatusOr<int> RunBench(const TrainConfig& config) {
  if (!config.data.empty() && config.ladder)
    return Invalid("`ladder`: measures updates on synthetic samples (no `data`)");
  if (!config.data.empty()) return BenchData(config);
  RETURN_IF_ERROR(RefuseUnused(config, {.has_data = false}));
  if (config.ladder) return MeasureLadder(config);
  const double begin = Now();
  const int64_t resident = PeakResidentBytes();
  ASSIGN_OR_RETURN(const Setup setup, SetUp(config));
  Result result;
  RETURN_IF_ERROR(MeasureSteps(config, setup, begin, resident, &result));
  if (!config.steps_only) {
    RETURN_IF_ERROR(MeasureOperators(setup, &result));
    result.bandwidth = TriadBandwidth(setup.trial.compute_threads());
  }
  RETURN_IF_ERROR(Print(config.json ? WriteJson(ToJson(config, setup, result), 2) + "\n" : Page(setup, result)));
  return kDone;
}

}  // namespace onnxtrain::cli
