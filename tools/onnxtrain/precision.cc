#include "tools/onnxtrain/precision.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "absl/strings/str_format.h"
#include "backends/bound_program.h"
#include "frontend/base/status.h"
#include "optim/optimize.h"
#include "optim/training_graph.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/units.h"

namespace onnxtrain::cli {
namespace {

// Less gain than this is not worth the bits.
constexpr double kWorthIt = 0.9;

// Forward and backward pass of one micro-batch, the best of a few runs. Inputs are zeros, which take as long as any numbers.
absl::StatusOr<double> TimeMicro(const Graph& graph, DType compute, Backend& backend) {
  using Clock = std::chrono::steady_clock;
  ASSIGN_OR_RETURN(const Graph optimized, OptimizeProgram(graph, compute));
  ASSIGN_OR_RETURN(const Graph legal, backend.Legalize(optimized));
  ASSIGN_OR_RETURN(BoundProgram program, BoundProgram::Make(backend, legal));
  RETURN_IF_ERROR(program.Run());  // the first run touches new memory
  double best = std::numeric_limits<double>::infinity(), total = 0;
  constexpr double kEnough = 0.3;
  for (int runs = 0; runs < 20 && total < kEnough; ++runs) {
    const auto begin = Clock::now();
    RETURN_IF_ERROR(program.Run());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

absl::StatusOr<PrecisionChoice> DecideAuto(const PreparedModel& model, Backend& backend, const SessionOptions& options) {
  ASSIGN_OR_RETURN(const Graph graph, BuildMicro(model.model, model.loss, options.loss, options.micro_batch, {}));
  ASSIGN_OR_RETURN(const double wide, TimeMicro(graph, DType::kFloat32, backend));
  ASSIGN_OR_RETURN(const double low, TimeMicro(graph, DType::kBFloat16, backend));
  const bool faster = low < kWorthIt * wide;
  return PrecisionChoice{faster ? "bf16" : "no", absl::StrFormat("auto: %s, as forward and backward take %.3g ms in bf16 and %.3g ms in float32",
                                                                 faster ? "bf16" : "float32", low * 1e3, wide * 1e3)};
}

absl::StatusOr<PrecisionChoice> Decide(const PreparedModel& model, Backend& backend, const SessionOptions& options) {
  if (FLAGS_mixed_precision == "auto") return DecideAuto(model, backend, options);
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

absl::StatusOr<PrecisionChoice> SetPrecision(const PreparedModel& model, Backend& backend, SessionOptions* options) {
  if (Given("loss_scale") && FLAGS_mixed_precision != "fp16") return Invalid("--loss-scale: has no effect without --mixed-precision fp16");
  ASSIGN_OR_RETURN(PrecisionChoice choice, Decide(model, backend, *options));
  if (choice.name == "bf16") options->compute = DType::kBFloat16;
  if (choice.name != "fp16") return choice;
  options->compute = DType::kFloat16;
  ASSIGN_OR_RETURN(options->loss_scale, LossScaleFlag());
  StrAppend(&choice.why, "; loss scale ", FLAGS_loss_scale, " (--loss-scale)");
  return choice;
}

}  // namespace onnxtrain::cli
