#include "optim/plan/auto_choices.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/plan/threads.h"
#include "optim/plan/training_run.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWorthwhile = 0.9;  // a smaller micro-batch must need at most this share of the time per sample
constexpr size_t kManyNodes = 5000;  // graphs of more nodes take long to compile again
constexpr double kCheapReading = 0.02, kSpare = 1.25;
constexpr double kEnoughReading = 0.3;  // seconds

absl::StatusOr<double> MeasureReading(const TrainData& train, const TrainOptions& options) {
  LoaderOptions load = MakeLoaderOptions(options);
  load.num_workers = 0;
  load.epochs = -1;
  ASSIGN_OR_RETURN(auto loader, Loader::Create(train.dataset, train.specs, load));
  RETURN_IF_ERROR(loader->Next().status());  // the first batch allocates
  const auto begin = Clock::now();
  double seconds = 0;
  int batches = 0;
  while (batches < 10 && seconds < kEnoughReading) {
    RETURN_IF_ERROR(loader->Next().status());
    ++batches;
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return seconds / batches;
}

// Returns a function that compiles a program for a micro-batch and returns the median time of several runs.
MeasureMicroBatch MakeMeasure(PreparedModels& models, Backend& backend, const SessionOptions& options) {
  return [&models, &backend, options = options](int64_t samples) mutable -> absl::StatusOr<double> {
    options.micro_batch = samples;
    ASSIGN_OR_RETURN(const Graph graph, BuildMicroGraph(models, options));
    ASSIGN_OR_RETURN(const auto times, MicroTimer(graph, options.recompute, 0, backend).Time(options.compute));
    return times[times.size() / 2];
  };
}

// Returns true if the model computes batch statistics, which depend on the micro-batch size.
bool HasBatchStatistics(const TrainingRun& run) {
  return run.facts.has_batch_norm && !run.session_options.import.batch_norm_frozen;
}

void SetMicroBatch(int64_t samples, SessionOptions* options, BatchPlan* batch) {
  options->micro_batch = batch->micro = samples;
  batch->accumulation = batch->global / samples;
}

}  // namespace

void SetAutoFields(int64_t global_batch, TrainConfig* config) {
  if (!IsSpecified(*config, "mixed_precision")) config->mixed_precision = "auto";
  const bool rate_is_open = !SpecifiesBaseRate(config->lr) && !config->lr_find && !IsSpecified(*config, "lr_scale") &&
                            config->max_tokens_per_batch == 0;
  if (rate_is_open && global_batch > config->lr_scale_base) config->lr_scale = "auto";
}

bool IsMicroBatchOpen(const TrainConfig& config) {
  return config.automatic && config.micro_batch_size == 0 && config.gradient_accumulation_steps == 0 &&
         config.max_tokens_per_batch == 0;
}

int64_t LargestDivisor(int64_t global, int64_t fit, int64_t samples) {
  if (fit >= std::min(global, samples)) return global;
  int64_t divisor = std::max<int64_t>(1, fit);
  while (global % divisor != 0) --divisor;
  return divisor;
}

absl::StatusOr<MicroBatchTime> FastestMicroBatch(int64_t largest, bool fixed, const MeasureMicroBatch& measure) {
  MicroBatchTime best{.samples = largest};
  ASSIGN_OR_RETURN(best.seconds, measure(largest));
  while (!fixed && best.samples % 2 == 0) {
    MicroBatchTime half{.samples = best.samples / 2};
    ASSIGN_OR_RETURN(half.seconds, measure(half.samples));
    if (2 * half.seconds > kWorthwhile * best.seconds) break;
    best = half;
  }
  return best;
}

int ChooseWorkers(double load_seconds, double step_seconds, int cpus) {
  if (load_seconds < kCheapReading * step_seconds) return 0;
  const double busy = step_seconds > 0 ? kSpare * load_seconds / step_seconds : kMostAutoWorkers;
  return static_cast<int>(std::clamp(std::ceil(busy), 1.0, static_cast<double>(std::min(cpus, kMostAutoWorkers))));
}

void AutoChooser::Add(const char* field, const std::string& value, const std::string& why) {
  choices_.push_back({field, value, IsSpecified(given_, field) ? "as given" : why});
}

absl::Status AutoChooser::FitMicroBatch(SessionOptions* options, TrainingRun* run) const {
  if (!IsMicroBatchOpen(given_) || options->fixed_batch > 0) return absl::OkStatus();
  const int64_t samples = run->train.dataset->size(), most = std::min(run->batch.global, samples);
  ASSIGN_OR_RETURN(const int64_t fit,
                   LargestMicroBatch(run->data.models, *run->backend, *options, most, run->batch.global));
  SetMicroBatch(LargestDivisor(run->batch.global, fit, samples), options, &run->batch);
  return absl::OkStatus();
}

absl::Status AutoChooser::ChooseMicroBatch(SessionOptions* options, TrainingRun* run) {
  const bool open = IsMicroBatchOpen(given_) && options->fixed_batch == 0;
  const int64_t largest = run->batch.micro;
  const std::string fits = StrCat(largest == run->batch.global
                                      ? "the whole batch fits the memory"
                                      : StrCat("the most that divides ", run->batch.global, " and fits the memory"));
  ASSIGN_OR_RETURN(const Graph graph, BuildMicroGraph(*run->data.models, *options));
  if (graph.nodes().size() > kManyNodes) {
    if (open) Add("micro_batch_size", StrCat(largest), StrCat(fits, "; not timed, the graph is large"));
    return absl::OkStatus();
  }
  const bool fixed = !open || HasBatchStatistics(*run);
  ASSIGN_OR_RETURN(const MicroBatchTime fastest,
                   FastestMicroBatch(largest, fixed, MakeMeasure(*run->data.models, *run->backend, *options)));
  SetMicroBatch(fastest.samples, options, &run->batch);
  step_seconds_ = fastest.seconds * static_cast<double>(run->batch.accumulation);
  const char* const bound = given_.max_tokens_per_batch > 0 ? "the longest samples that the tokens of a batch allow"
                                                            : "the model runs with no other";
  if (!open) return Add("micro_batch_size", StrCat(run->batch.micro), bound), absl::OkStatus();
  const char* why = fastest.samples < largest ? "smaller ones take less time per sample"
                    : fixed                   ? "batch statistics need many samples"
                                              : "half of it takes no less time per sample";
  Add("micro_batch_size", StrCat(fastest.samples), StrCat(fits, "; ", why, ": ", FormatDuration(fastest.seconds)));
  return absl::OkStatus();
}

absl::Status AutoChooser::ChooseWorkers(const TrainData& train, TrainOptions* options) {
  if (IsSpecified(given_, "num_workers") || step_seconds_ == 0) {
    Add("num_workers", StrCat(options->num_workers), "by the number of CPUs: an update was not timed");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const double load_seconds, MeasureReading(train, *options));
  const int workers = onnxtrain::ChooseWorkers(load_seconds, step_seconds_, CpuCount());
  options->num_workers = IsSpecified(given_, "prefetch_factor") ? std::max(workers, 1) : workers;
  options->max_workers = 0;
  Add("num_workers", StrCat(options->num_workers),
      StrCat("one thread reads a batch in ", FormatDuration(load_seconds), ", forward and backward pass take ",
             FormatDuration(step_seconds_)));
  return absl::OkStatus();
}

absl::Status AutoChooser::AddRecomputation(TrainingRun* run) {
  int64_t repeated = 0;
  double share = 0;
  for (const ProgramProfile& program : run->session->Profile()) {
    repeated = std::max(repeated, program.repeated);
    share = std::max(share, program.extra_share);
  }
  const std::string planned =
      StrCat("the run takes ", FormatBytes(static_cast<double>(run->session->planned_peak_bytes())), " as planned, ",
             FormatBytes(static_cast<double>(run->backend->FreeMemory())), " are free");
  Add("gradient_checkpointing", given_.gradient_checkpointing,
      repeated == 0
          ? StrCat("nothing is recomputed: ", planned)
          : absl::StrFormat("%d nodes are recomputed, %.0f%% of the time: %s", repeated, 100 * share, planned));
  return absl::OkStatus();
}

// Adds the choice of threads. Gives OMP_NUM_THREADS as the reason only if it limits the threads, because the program
// that loads a backend may have set it to all CPUs.
void AutoChooser::AddThreads(const TrainingRun& run) {
  const char* named = std::getenv("OMP_NUM_THREADS");
  const int64_t chosen = run.threads > 0 ? run.threads : run.config.threads;
  const bool timed = chosen > 0;
  const int64_t wanted = timed ? chosen : named != nullptr ? std::atoll(named) : 0;
  const int64_t threads = wanted > 0 ? std::min<int64_t>(wanted, CpuCount()) : CpuCount();
  const char* all = timed ? "all that the process may use: fewer are slower" : "all that the process may use";
  const char* fewer = timed ? "the fewest that are as fast as all: the micro-batch has little work" : "OMP_NUM_THREADS";
  Add("threads", StrCat(threads), threads == CpuCount() ? all : fewer);
}

void AutoChooser::AddRateScale(const TrainingRun& run) {
  const std::string base = StrCat("the batch of ", run.batch.global, ", and rates are meant for ",
                                  run.config.lr_scale_base, " (`lr_scale_base`)");
  Add("lr_scale", run.config.lr_scale,
      run.config.lr_scale != "none"                               ? "for " + base
      : SpecifiesBaseRate(given_.lr) || run.rate_test.has_value() ? "the rate is that of this batch"
                                                                  : "not above it: " + base);
}

absl::Status AutoChooser::Choose(SessionOptions* options, TrainingRun* run) {
  RETURN_IF_ERROR(FitMicroBatch(options, run));
  ASSIGN_OR_RETURN(run->precision, ChoosePrecisionAndBatch(run->config, run->data.models, *run->backend,
                                                           run->train.dataset->size(), &run->batch, options));
  Add("mixed_precision", run->precision.name, std::string(absl::StripPrefix(run->precision.why, "auto: ")));
  RETURN_IF_ERROR(ChooseMicroBatch(options, run));
  return ChooseWorkers(run->train, &run->options);
}

absl::Status AutoChooser::Finish(TrainingRun* run) {
  AddThreads(*run);
  RETURN_IF_ERROR(AddRecomputation(run));
  AddRateScale(*run);
  run->choices = std::move(choices_);
  return absl::OkStatus();
}

namespace {

// The largest time relative to float32 that justifies the lower precision.
constexpr double kMaxTimeRatio = 0.9;

// Returns the bytes that a session with these options holds besides its programs.
absl::StatusOr<int64_t> SessionBytes(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                     SessionOptions options) {
  options.plan_only = true;
  ASSIGN_OR_RETURN(const auto session, Session::Create(models, &backend, std::move(options)));
  return session->memory().total();
}

// Returns true if the program exceeds the memory or the budget.
bool IsTooLarge(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status);
}

absl::StatusOr<PrecisionChoice> DecideAuto(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                           const SessionOptions& options) {
  ASSIGN_OR_RETURN(const int64_t beside, SessionBytes(models, backend, options));
  ASSIGN_OR_RETURN(const Graph graph, BuildMicroGraph(*models, options));
  const MicroTimer timer(graph, options.recompute, beside, backend);
  const auto wide_times = timer.Time(DType::kFloat32), low_times = timer.Time(DType::kBFloat16);
  if (wide_times.ok() && IsTooLarge(low_times.status()))
    return PrecisionChoice{"no", "auto: float32, as bf16 does not fit in memory"};
  if (low_times.ok() && IsTooLarge(wide_times.status()))
    return PrecisionChoice{"bf16", "auto: bf16, as float32 does not fit in memory"};
  RETURN_IF_ERROR(wide_times.status());
  RETURN_IF_ERROR(low_times.status());
  const double wide = wide_times->front(), low = low_times->front();
  const bool faster = low < kMaxTimeRatio * wide;
  return PrecisionChoice{
      faster ? "bf16" : "no",
      absl::StrFormat("auto: %s, as forward and backward take %.3g ms in bf16 and %.3g ms in float32",
                      faster ? "bf16" : "float32", low * 1e3, wide * 1e3)};
}

absl::StatusOr<PrecisionChoice> Decide(const std::string& precision, const std::shared_ptr<PreparedModels>& models,
                                       Backend& backend, const SessionOptions& options) {
  if (precision == "auto") return DecideAuto(models, backend, options);
  if (precision == "no") return PrecisionChoice{};
  if (precision == "tf32") {
    if (!backend.device().starts_with("cuda"))
      return Invalid("`mixed_precision` tf32: only CUDA devices have it, this run is on ", backend.device());
    return PrecisionChoice{precision, "float32; factors of matrix products and convolutions are rounded to TF32"};
  }
  PrecisionChoice choice{precision, StrCat("matrix products in ", precision, ", weights and gradients in float32")};
  if (choice.name == "fp16" && backend.device() == "cpu") {
    StrAppend(&choice.why, "; a CPU has no fp16 products: emulated, slower than float32");
    choice.warning =
        "`mixed_precision` fp16 is emulated on a CPU: slower than float32, good to see what fp16 does to this model "
        "(bf16 is fast)";
  }
  return choice;
}

absl::StatusOr<PrecisionChoice> ApplyPrecision(const TrainConfig& config, const std::shared_ptr<PreparedModels>& models,
                                               Backend& backend, SessionOptions* options) {
  ASSIGN_OR_RETURN(PrecisionChoice choice, Decide(config.mixed_precision, models, backend, *options));
  if (choice.name == "bf16") options->compute = DType::kBFloat16;
  if (choice.name != "fp16") return choice;
  options->compute = DType::kFloat16;
  const bool dynamic = config.loss_scale == 0;
  options->loss_scale = dynamic ? LossScaleSpec{} : LossScaleSpec{.initial = config.loss_scale, .dynamic = false};
  StrAppend(&choice.why, "; loss scale ", dynamic ? "dynamic" : FormatNumber(config.loss_scale), " (`loss_scale`)");
  return choice;
}

}  // namespace

absl::StatusOr<PrecisionChoice> ChoosePrecisionAndBatch(const TrainConfig& config,
                                                        const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                        int64_t samples, BatchPlan* batch, SessionOptions* options) {
  const auto fit = [&]() -> absl::Status {
    if (config.micro_batch_size != TrainConfig::kAuto) return absl::OkStatus();
    ASSIGN_OR_RETURN(*batch, FitMicroBatch(models, backend, *options, *batch, samples));
    options->micro_batch = batch->micro;
    return absl::OkStatus();
  };
  const bool timed = config.mixed_precision == "auto";
  if (timed) RETURN_IF_ERROR(fit());  // compares the types on a micro-batch that fits in both
  ASSIGN_OR_RETURN(PrecisionChoice choice, ApplyPrecision(config, models, backend, options));
  if (!timed || options->compute != DType::kFloat32) RETURN_IF_ERROR(fit());
  // The other sizes were only planned.
  if (config.micro_batch_size == TrainConfig::kAuto) models->KeepSize(options->micro_batch);
  return choice;
}

}  // namespace onnxtrain
