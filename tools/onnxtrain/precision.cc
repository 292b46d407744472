#include "tools/onnxtrain/precision.h"

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "optim/optimize.h"
#include "optim/telemetry/profile.h"
#include "optim/training_graph.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/units.h"

namespace onnxtrain::cli {
namespace {

// Less gain than this is not worth the bits.
constexpr double kWorthIt = 0.9;

absl::StatusOr<PrecisionChoice> DecideAuto(const PreparedModel& model, Backend& backend, int threads, const SessionOptions& options) {
  const int64_t batch = options.micro_batch;
  ASSIGN_OR_RETURN(const Graph graph, BuildMicro(model.model, model.loss, options.loss, batch, {}));
  const double bandwidth = TriadBandwidth(threads);
  double seconds[2];
  for (int low : {0, 1}) {
    ASSIGN_OR_RETURN(const Graph optimized, OptimizeProgram(graph, low != 0 ? DType::kBFloat16 : DType::kFloat32));
    ASSIGN_OR_RETURN(const Graph legal, backend.Legalize(optimized));
    ASSIGN_OR_RETURN(seconds[low], EstimateSeconds(backend, legal, bandwidth));
  }
  const bool faster = seconds[1] < kWorthIt * seconds[0];
  return PrecisionChoice{faster ? "bf16" : "no",
                         absl::StrFormat("auto: %s; forward and backward would take about %.3g ms in bf16, %.3g ms in float32",
                                         faster ? "bf16" : "float32", seconds[1] * 1e3, seconds[0] * 1e3)};
}

absl::StatusOr<PrecisionChoice> Decide(const PreparedModel& model, Backend& backend, int threads, const SessionOptions& options) {
  if (FLAGS_mixed_precision == "auto") return DecideAuto(model, backend, threads, options);
  if (FLAGS_mixed_precision == "no") return PrecisionChoice{};
  PrecisionChoice choice{FLAGS_mixed_precision, StrCat("products in ", FLAGS_mixed_precision, ", weights and gradients in float32")};
  if (choice.name == "fp16" && backend.device() == "cpu") {
    StrAppend(&choice.why, "; a CPU has no fp16 products: emulated, slower than float32");
    Warn("--mixed-precision fp16 is emulated on a CPU: slower than float32, good to see what fp16 does to this model (bf16 is fast)");
  }
  return choice;
}

absl::StatusOr<LossScaleSpec> LossScaleFlag() {
  if (FLAGS_loss_scale == "dynamic") return LossScaleSpec{};
  const auto scale = ParseNumber(FLAGS_loss_scale);
  if (!scale.ok() || !(*scale > 0)) return Invalid("--loss-scale: expected dynamic or a number above 0, got '", FLAGS_loss_scale, "'");
  return LossScaleSpec{.initial = *scale, .dynamic = false};
}

}  // namespace

absl::StatusOr<PrecisionChoice> SetPrecision(const PreparedModel& model, Backend& backend, int threads, SessionOptions* options) {
  if (Given("loss_scale") && FLAGS_mixed_precision != "fp16") return Invalid("--loss-scale: has no effect without --mixed-precision fp16");
  ASSIGN_OR_RETURN(PrecisionChoice choice, Decide(model, backend, threads, *options));
  if (choice.name == "bf16") options->compute = DType::kBFloat16;
  if (choice.name != "fp16") return choice;
  options->compute = DType::kFloat16;
  ASSIGN_OR_RETURN(options->loss_scale, LossScaleFlag());
  StrAppend(&choice.why, "; loss scale ", FLAGS_loss_scale, " (--loss-scale)");
  return choice;
}

}  // namespace onnxtrain::cli
