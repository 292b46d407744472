#include "optim/record/telemetry/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

std::string Position(const TrainEvent& e, const ProgressContext& context) {
  const auto digits = static_cast<int>(std::to_string(std::max(context.total_steps, e.step)).size());
  std::string text = absl::StrFormat("%*d", digits, e.step);
  if (context.total_steps > 0) StrAppend(&text, "/", context.total_steps);
  return text + absl::StrFormat("  epoch %5.2f", e.epoch);
}

std::string Percent(double part) { return absl::StrFormat("%6.2f%%", 100 * part); }

std::string StepText(const TrainEvent& e, const ProgressContext& context) {
  std::string text =
      e.report.weight > 0 ? absl::StrFormat("  loss %-8.4g", e.report.loss) : std::string("  loss none    ");
  if (context.has_accuracy && e.report.targets > 0)
    StrAppend(&text, "  acc ", Percent(e.report.correct / e.report.targets));
  const bool tokens = context.tokens_per_sample > 0;
  const double rate = e.samples_per_second * static_cast<double>(tokens ? context.tokens_per_sample : 1);
  text += absl::StrFormat("  lr %.2e  |g| %-7.3g %9s %s/s", e.report.learning_rate, std::abs(e.report.grad_norm),
                          FormatRate(rate), tokens ? "tokens" : "samples");
  text += absl::StrFormat("  wait %2.0f%%  cpu %.1f  mem %s", 100 * e.data_wait, e.resources.busy_cpus,
                          FormatBytes(static_cast<double>(e.resources.resident_bytes)));
  for (const GpuReading& gpu : e.resources.gpus) absl::StrAppendFormat(&text, "  gpu %3.0f%%", 100 * gpu.utilization);
  if (!e.outliers.empty()) StrAppend(&text, "  outliers ", e.outliers.size());
  if (e.report.skipped > 0) text += absl::StrFormat("  %d skipped (gradient not finite)", e.report.skipped);
  return text;
}

// Returns "  eta   1:04:09", of constant width below 100 hours.
std::string TimeLeft(double seconds) {
  if (seconds < 0) return std::string(15, ' ');
  const auto whole = static_cast<int64_t>(std::llround(seconds)), hours = whole / 3600;
  const std::string minutes = absl::StrFormat("%02d:%02d", whole / 60 % 60, whole % 60);
  return absl::StrFormat("  eta %9s", hours > 0 ? StrCat(hours, ":", minutes) : minutes);
}

std::string EvalText(const TrainEvent& e) {
  std::string text = absl::StrFormat("  eval %-8.4g", e.eval.loss);
  if (e.eval.accuracy >= 0) StrAppend(&text, "  acc ", Percent(e.eval.accuracy));
  for (const auto& [name, value] : e.eval.metrics) StrAppend(&text, "  ", name, " ", FormatNumber(value));
  return text + absl::StrFormat("  on %s samples", FormatWithCommas(e.eval.samples));
}

// Returns the columns of the terminal, less one for the cursor.
size_t Columns(std::FILE* out) {
  winsize size{};
  const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1 : std::numeric_limits<size_t>::max();
}

}  // namespace

std::string ProgressLine(const TrainEvent& event, const ProgressContext& context, double seconds_left) {
  const bool step = event.kind == TrainEvent::Kind::kStep;
  return Position(event, context) + (context.total_steps > 0 ? TimeLeft(seconds_left) : "") +
         (step ? StepText(event, context) : EvalText(event));
}

Console::Console(std::FILE* out, const ProgressContext& context)
    : out_(out), context_(context), terminal_(isatty(fileno(out)) == 1) {}

// Extrapolates from the time since the first report, to include evaluations and checkpoints but no compilation.
double Console::SecondsLeft(const TrainEvent& event) {
  if (first_step_ < 0) {
    first_step_ = event.step;
    first_seconds_ = event.seconds;
  }
  const int64_t steps = event.step - first_step_;
  if (context_.total_steps == 0 || steps <= 0) return -1;
  return (event.seconds - first_seconds_) / static_cast<double>(steps) *
         static_cast<double>(std::max<int64_t>(0, context_.total_steps - event.step));
}

// Skipped updates are always reported.
bool Console::LeavesOut(const TrainEvent& event) const {
  constexpr int64_t kLines = 20;
  constexpr double kSeconds = 60;
  if (terminal_ || !context_.sparse || context_.total_steps == 0 || event.kind != TrainEvent::Kind::kStep) return false;
  if (event.step >= context_.total_steps || event.report.skipped > 0) return false;
  return (event.step - printed_step_) * kLines < context_.total_steps && event.seconds - printed_seconds_ < kSeconds;
}

void Console::Show(const TrainEvent& event) {
  const bool step = event.kind == TrainEvent::Kind::kStep, stays = !terminal_ || !step;
  std::string line = ProgressLine(event, context_, step ? SecondsLeft(event) : -1);
  if (LeavesOut(event)) return;
  if (step) {
    printed_step_ = event.step;
    printed_seconds_ = event.seconds;
  }
  if (!stays) line.resize(std::min(line.size(), Columns(out_)));  // a wrapped line could not be overwritten
  if (terminal_) std::fputs("\r\033[K", out_);
  std::fputs(line.c_str(), out_);
  if (stays) std::fputc('\n', out_);
  open_ = !stays;
  std::fflush(out_);
}

void Console::Finish() {
  if (open_) std::fputc('\n', out_);
  open_ = false;
  std::fflush(out_);
}

}  // namespace onnxtrain
