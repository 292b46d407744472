// onnxtrain bench: how long a training step takes on made-up data, where its time goes, and how that compares with what the
// machine reaches on the same products alone.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "optim/telemetry/format.h"
#include "optim/telemetry/profile.h"
#include "optim/telemetry/summary.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/precision.h"
#include "tools/onnxtrain/start_page.h"
#include "tools/onnxtrain/synthetic_run.h"
#include "tools/onnxtrain/train_plan.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWarmSteps = 3, kFewestSteps = 10, kMostSteps = 2000;
constexpr double kSeconds = 3, kProbeSeconds = 0.1;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Setup {
  std::shared_ptr<const OnnxModel> model;
  BatchPlan batch;
  SessionOptions options;
  Window window;
  std::unique_ptr<Backend> backend;
  PrecisionChoice precision;
};

struct Result {
  double first_step = 0;        // seconds from opening the file to the end of the first step
  double compile = 0;           // of that, building programs
  std::vector<double> seconds;  // per step, sorted
  int64_t planned = 0, peak = 0;
  MemoryUse arena;              // of the largest program
  std::vector<OperatorTime> operators;
  std::vector<ProductRate> products;
  double bandwidth = 0;

  double At(double quantile) const { return seconds[static_cast<size_t>(quantile * static_cast<double>(seconds.size() - 1))]; }
  double median() const { return At(0.5); }
};

absl::StatusOr<Setup> SetUp() {
  Setup s;
  ASSIGN_OR_RETURN(s.model, LoadKnownModel());
  const auto if_given = [](const char* flag, int64_t value) { return Given(flag) ? std::optional(value) : std::nullopt; };
  ASSIGN_OR_RETURN(s.batch, PlanBatch(if_given("batch_size", FLAGS_batch_size), if_given("micro_batch_size", FLAGS_micro_batch_size),
                                      if_given("gradient_accumulation_steps", FLAGS_gradient_accumulation_steps)));
  ASSIGN_OR_RETURN(const LossSpec loss, LossFlags(*s.model, std::nullopt));
  ASSIGN_OR_RETURN(const ImportOptions import, ImportFlags(*s.model));
  ASSIGN_OR_RETURN(const BoundData bound, SyntheticData(*s.model, import, loss, s.batch.global, FLAGS_seed));
  ASSIGN_OR_RETURN(s.options, MakeSessionOptions(*s.model, bound, loss, s.batch.micro));
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*s.model, bound, s.options, true));
  ASSIGN_OR_RETURN(const TrainData data, MakeTrainData(bound, look.loss, loss.ignore_index));
  ASSIGN_OR_RETURN(s.window, ReadWindow(data, s.batch.global));
  s.options.optimizer.rule = FLAGS_optimizer;
  s.options.optimizer.max_grad_norm = MaxGradNorm();
  s.options.optimizer.clip_value = FLAGS_clip_value;
  s.options.optimizer.agc = FLAGS_agc;
  s.options.optimizer.weight_decay = FLAGS_weight_decay;
  s.options.optimizer.lr = 1e-6;  // many steps on one batch must stay finite
  ASSIGN_OR_RETURN(s.backend, LoadBackend(FLAGS_backend));
  ASSIGN_OR_RETURN(s.precision, SetPrecision(look, *s.backend, &s.options));
  return s;
}

absl::Status StepAndWait(const Setup& s, Session& session) {
  RETURN_IF_ERROR(session.Step(s.window));
  return s.backend->Synchronize();
}

absl::Status TimeSteps(const Setup& s, Session& session, std::vector<double>* seconds) {
  for (int i = 0; i < kWarmSteps; ++i) RETURN_IF_ERROR(StepAndWait(s, session));
  const bool fixed = Given("max_steps");
  const int64_t most = fixed ? FLAGS_max_steps : kMostSteps, fewest = fixed ? FLAGS_max_steps : kFewestSteps;
  for (const double end = Now() + kSeconds; std::ssize(*seconds) < fewest || (Now() < end && std::ssize(*seconds) < most);) {
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

absl::Status MeasureSteps(const Setup& s, double begin, int64_t resident, Result* result) {
  ASSIGN_OR_RETURN(const auto session, Session::Create(s.model, s.backend.get(), s.options));
  RETURN_IF_ERROR(StepAndWait(s, *session));
  result->first_step = Now() - begin;
  result->compile = session->compile_seconds();
  RETURN_IF_ERROR(TimeSteps(s, *session, &result->seconds));
  result->planned = session->planned_peak_bytes();
  result->peak = PeakResidentBytes() - resident;
  result->arena = LargestArena(*session);
  return absl::OkStatus();
}

// What came after `before`, per update.
std::vector<OperatorTime> Since(const std::vector<OperatorTime>& before, std::vector<OperatorTime> after, int64_t updates) {
  for (OperatorTime& t : after) {
    const auto was = std::find_if(before.begin(), before.end(), [&](const OperatorTime& b) { return b.op == t.op; });
    const OperatorTime none, &old = was == before.end() ? none : *was;
    t.seconds = (t.seconds - old.seconds) / static_cast<double>(updates);
    t.flops = (t.flops - old.flops) / static_cast<double>(updates);
    t.bytes = (t.bytes - old.bytes) / static_cast<double>(updates);
  }
  std::sort(after.begin(), after.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return after;
}

// In a session of its own: timing every node slows small steps down.
absl::Status MeasureOperators(const Setup& s, Result* result) {
  SessionOptions options = s.options;
  options.time_nodes = true;
  ASSIGN_OR_RETURN(const auto session, Session::Create(s.model, s.backend.get(), options));
  for (int i = 0; i < kWarmSteps; ++i) RETURN_IF_ERROR(StepAndWait(s, *session));  // memory is touched for the first time
  const std::vector<OperatorTime> warm = OperatorTimes(session->Profile(), 1);
  int64_t updates = 0;
  for (const double end = Now() + kSeconds / 2; updates < 3 || (Now() < end && updates < kMostSteps); ++updates) {
    RETURN_IF_ERROR(StepAndWait(s, *session));
  }
  result->operators = Since(warm, OperatorTimes(session->Profile(), 1), updates);
  ASSIGN_OR_RETURN(result->products, ProbeProducts(*s.backend, session->Profile(), kProbeSeconds));
  return absl::OkStatus();
}

double ProductFlops(const Result& r) {
  double flops = 0;
  for (const ProductRate& p : r.products) flops += static_cast<double>(p.nodes) * p.flops;
  return flops;
}

std::string OperatorTable(const Result& r) {
  double total = 0;
  for (const OperatorTime& t : r.operators) total += t.seconds;
  std::string text = absl::StrFormat("  %-24s %6s %10s %7s %9s %9s\n", "operator", "nodes", "ms", "share", "GF/s", "GB/s");
  for (const OperatorTime& t : r.operators) {
    text += absl::StrFormat("  %-24s %6d %10.3f %6.1f%% %9.1f %9.1f\n", t.op, t.nodes, t.seconds * 1e3, 100 * t.seconds / total,
                            t.flops / t.seconds / 1e9, t.bytes / t.seconds / 1e9);
  }
  return text;
}

std::string ProductTable(const Result& r) {
  constexpr size_t kMost = 12;
  std::string text = absl::StrFormat("  %6s %9s %9s  %s\n", "nodes", "GF/s", "alone", "product");
  for (size_t i = 0; i < std::min(kMost, r.products.size()); ++i) {
    const ProductRate& p = r.products[i];
    text += absl::StrFormat("  %6d %9.1f %9.1f  %s\n", p.nodes, p.flops / p.in_step / 1e9, p.flops / p.seconds / 1e9, p.text);
  }
  if (r.products.size() > kMost) StrAppend(&text, "  … and ", r.products.size() - kMost, " more\n");
  return text;
}

std::string Page(const Setup& s, const Result& r) {
  const double samples = static_cast<double>(s.batch.global) / r.median(), rate = ProductFlops(r) / r.median();
  std::string text = PageRow("model", DescribeModel(*s.model));
  text += PageRow("backend", DescribeBackend(*s.backend));
  if (!s.precision.why.empty()) text += PageRow("precision", s.precision.why);
  text += PageRow("step", absl::StrFormat("%.3f ms (10%% %.3f, 90%% %.3f, %d steps), batch %d: %s samples/s", r.median() * 1e3,
                                          r.At(0.1) * 1e3, r.At(0.9) * 1e3, r.seconds.size(), s.batch.global,
                                          WithCommas(static_cast<int64_t>(samples))));
  text += PageRow("start", absl::StrFormat("%.2f s from opening the file to the end of the first step, %.2f s of it compiling",
                                           r.first_step, r.compile));
  if (!r.products.empty()) {
    text += PageRow("products", absl::StrFormat("%.3f GF a step: %.1f GF/s of the step's time; alone they reach %.1f GF/s (%.0f%%)",
                                                ProductFlops(r) / 1e9, rate / 1e9, ProbedRate(r.products) / 1e9,
                                                100 * rate / ProbedRate(r.products)));
  }
  if (r.bandwidth > 0) text += PageRow("bandwidth", absl::StrFormat("%.1f GB/s (triad)", r.bandwidth / 1e9));
  text += PageRow("memory", absl::StrFormat("arena %s (%.3f × its lower bound), planned %s, process %s above its start",
                                            ShownBytes(static_cast<double>(r.arena.arena)),
                                            static_cast<double>(r.arena.arena) / std::max<double>(1, r.arena.lower_bound),
                                            ShownBytes(static_cast<double>(r.planned)), ShownBytes(static_cast<double>(r.peak))));
  return text + (r.operators.empty() ? "" : OperatorTable(r)) + (r.products.empty() ? "" : ProductTable(r));
}

Json ToJson(const Setup& s, const Result& r) {
  Json json = {{"model", FLAGS_model}, {"backend", s.backend->name()}, {"device", s.backend->device()},
               {"description", s.backend->description()}, {"threads", ComputeThreads()}, {"precision", s.precision.name}, {"batch", s.batch.global},
               {"micro_batch", s.batch.micro}, {"steps", r.seconds.size()}, {"median_seconds", r.median()},
               {"seconds", r.seconds}, {"first_step_seconds", r.first_step}, {"compile_seconds", r.compile},
               {"product_flops", ProductFlops(r)}, {"probed_flops_per_second", ProbedRate(r.products)},
               {"triad_bytes_per_second", r.bandwidth}, {"arena_bytes", r.arena.arena},
               {"arena_lower_bound_bytes", r.arena.lower_bound}, {"scratch_bytes", r.arena.scratch},
               {"planned_peak_bytes", r.planned}, {"process_peak_bytes", r.peak}, {"operators", Json::array()},
               {"products", Json::array()}};
  for (const OperatorTime& t : r.operators) {
    json["operators"].push_back({{"op", t.op}, {"nodes", t.nodes}, {"seconds", t.seconds}, {"flops", t.flops}, {"bytes", t.bytes}});
  }
  for (const ProductRate& p : r.products) {
    json["products"].push_back(
        {{"product", p.text}, {"nodes", p.nodes}, {"flops", p.flops}, {"seconds_alone", p.seconds}, {"seconds_in_step", p.in_step}});
  }
  return json;
}

}  // namespace

absl::StatusOr<int> RunBench() {
  const double begin = Now();
  const int64_t resident = PeakResidentBytes();
  ASSIGN_OR_RETURN(const Setup setup, SetUp());
  Result result;
  RETURN_IF_ERROR(MeasureSteps(setup, begin, resident, &result));
  if (!FLAGS_steps_only) {
    RETURN_IF_ERROR(MeasureOperators(setup, &result));
    result.bandwidth = TriadBandwidth(ComputeThreads());
  }
  Print(FLAGS_json ? ToJson(setup, result).dump(2) + "\n" : Page(setup, result));
  return kDone;
}

}  // namespace onnxtrain::cli
