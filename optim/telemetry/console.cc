#include "optim/telemetry/console.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "optim/telemetry/format.h"

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
  text += absl::StrFormat("  lr %.2e  |g| %-7.3g %9s samples/s", e.report.learning_rate, std::abs(e.report.grad_norm),
                          FormatWithCommas(std::llround(e.samples_per_second)));
  if (e.report.skipped > 0) text += absl::StrFormat("  %d skipped (gradient not finite)", e.report.skipped);
  return text;
}

std::string EvalText(const TrainEvent& e) {
  std::string text = absl::StrFormat("  eval %-8.4g", e.eval.loss);
  if (e.eval.accuracy >= 0) StrAppend(&text, "  acc ", Percent(e.eval.accuracy));
  for (const auto& [name, value] : e.eval.metrics) StrAppend(&text, "  ", name, " ", FormatNumber(value));
  return text + absl::StrFormat("  on %s samples", FormatWithCommas(e.eval.samples));
}

}  // namespace

std::string ProgressLine(const TrainEvent& event, const ProgressContext& context) {
  return Position(event, context) +
         (event.kind == TrainEvent::Kind::kStep ? StepText(event, context) : EvalText(event));
}

Console::Console(std::FILE* out, const ProgressContext& context)
    : out_(out), context_(context), terminal_(isatty(fileno(out)) == 1) {}

void Console::Show(const TrainEvent& event) {
  const bool stays = !terminal_ || event.kind == TrainEvent::Kind::kEval;
  if (terminal_) std::fputs("\r\033[K", out_);
  std::fputs(ProgressLine(event, context_).c_str(), out_);
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
