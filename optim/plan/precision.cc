#include "optim/plan/precision.h"

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/micro_batch.h"

namespace onnxtrain {
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
