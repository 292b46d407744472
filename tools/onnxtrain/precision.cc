#include "tools/onnxtrain/precision.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "optim/prepare.h"
#include "optim/programs.h"
#include "optim/training_graph.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/memory_flags.h"
#include "tools/onnxtrain/units.h"

namespace onnxtrain::cli {
namespace {

// Less gain than this is not worth the bits.
constexpr double kWorthIt = 0.9;

// Memory for the weights of a graph: zeros, which take as long as any numbers.
absl::Status AllocateWeights(const Graph& graph, Backend& backend, Arena* weights) {
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind != InputKind::kFeed) weights->Add(input.name, graph.type(input.value));
  }
  return weights->Allocate(backend, "weights");
}

absl::StatusOr<double> BestOf(Programs& programs, CompiledProgram& program, Backend& backend) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity(), total = 0;
  constexpr double kEnough = 0.3;
  for (int runs = 0; runs < 20 && total < kEnough; ++runs) {
    const auto begin = Clock::now();
    RETURN_IF_ERROR(programs.Run(program));
    RETURN_IF_ERROR(backend.Synchronize());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

// What a session with these options would hold beside its programs.
absl::StatusOr<int64_t> SessionBytes(const std::shared_ptr<const OnnxModel>& model, Backend& backend, SessionOptions options) {
  options.plan_only = true;
  ASSIGN_OR_RETURN(const auto session, Session::Create(model, &backend, std::move(options)));
  return session->memory().total();
}

// Forward and backward pass of one micro-batch, under the session's budget: what is computed again there is computed again here.
class MicroTimer {
 public:
  MicroTimer(const Graph& graph, const SessionOptions& options, int64_t session_bytes, Backend& backend)
      : graph_(graph), recompute_(options.recompute), session_bytes_(session_bytes), backend_(backend) {}

  // One after the other, each in memory of its own.
  absl::StatusOr<double> Time(DType compute) const {
    Arena weights;
    RETURN_IF_ERROR(AllocateWeights(graph_, backend_, &weights));
    Bindings state;
    for (const std::string& name : weights.names()) state[name] = weights.At(name);
    Programs programs(&backend_, compute, false, recompute_, [this] { return static_cast<size_t>(session_bytes_); });
    ASSIGN_OR_RETURN(const auto program, programs.Compile(graph_, {}, state));
    RETURN_IF_ERROR(programs.Run(*program));  // the first run touches new memory
    return BestOf(programs, *program, backend_);
  }

 private:
  const Graph& graph_;
  const RecomputeSpec recompute_;
  const int64_t session_bytes_;
  Backend& backend_;
};

absl::StatusOr<PrecisionChoice> DecideAuto(const std::shared_ptr<const OnnxModel>& model, Backend& backend, const SessionOptions& options) {
  ASSIGN_OR_RETURN(const int64_t beside, SessionBytes(model, backend, options));
  ASSIGN_OR_RETURN(const PreparedModel look, Prepare(*model, {options.import, options.loss, options.labels, options.trainable}, options.micro_batch, true));
  ASSIGN_OR_RETURN(const Graph graph, BuildMicro(look.model, look.loss, options.loss, options.micro_batch, {}));
  const MicroTimer timer(graph, options, beside, backend);
  ASSIGN_OR_RETURN(const double wide, timer.Time(DType::kFloat32));
  ASSIGN_OR_RETURN(const double low, timer.Time(DType::kBFloat16));
  const bool faster = low < kWorthIt * wide;
  return PrecisionChoice{faster ? "bf16" : "no", absl::StrFormat("auto: %s, as forward and backward take %.3g ms in bf16 and %.3g ms in float32",
                                                                 faster ? "bf16" : "float32", low * 1e3, wide * 1e3)};
}

absl::StatusOr<PrecisionChoice> Decide(const std::shared_ptr<const OnnxModel>& model, Backend& backend, const SessionOptions& options) {
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

absl::StatusOr<PrecisionChoice> SetPrecision(const std::shared_ptr<const OnnxModel>& model, Backend& backend, SessionOptions* options) {
  if (Given("loss_scale") && FLAGS_mixed_precision != "fp16") return Invalid("--loss-scale: has no effect without --mixed-precision fp16");
  ASSIGN_OR_RETURN(PrecisionChoice choice, Decide(model, backend, *options));
  if (choice.name == "bf16") options->compute = DType::kBFloat16;
  if (choice.name != "fp16") return choice;
  options->compute = DType::kFloat16;
  ASSIGN_OR_RETURN(options->loss_scale, LossScaleFlag());
  StrAppend(&choice.why, "; loss scale ", FLAGS_loss_scale, " (--loss-scale)");
  return choice;
}

}  // namespace

absl::StatusOr<PrecisionChoice> SetPrecisionAndBatch(const std::shared_ptr<const OnnxModel>& model, Backend& backend, int64_t samples,
                                                     BatchPlan* batch, SessionOptions* options) {
  const auto fit = [&]() -> absl::Status {
    if (!AutoMicroBatch()) return absl::OkStatus();
    ASSIGN_OR_RETURN(*batch, FitMicroBatch(model, backend, *options, *batch, samples));
    options->micro_batch = batch->micro;
    return absl::OkStatus();
  };
  const bool timed = FLAGS_mixed_precision == "auto";
  if (timed) RETURN_IF_ERROR(fit());  // types are compared on a micro-batch that fits in both
  ASSIGN_OR_RETURN(PrecisionChoice choice, SetPrecision(model, backend, options));
  if (!timed || options->compute != DType::kFloat32) RETURN_IF_ERROR(fit());
  return choice;
}

}  // namespace onnxtrain::cli
