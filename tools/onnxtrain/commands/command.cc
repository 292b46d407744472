#include "tools/onnxtrain/commands/command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "frontend/base/status.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/threads.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags/flags.h"

namespace onnxtrain::cli {

void LogInfo(const TrainConfig& config, const std::string& text) {
  if (!config.quiet) std::fputs((FieldsToFlags(text) + (text.ends_with('\n') ? "" : "\n")).c_str(), stderr);
}

void Warn(const std::string& text) {
  std::fputs(StrCat("onnxtrain: warning: ", FieldsToFlags(text), "\n").c_str(), stderr);
}

int ExitCodeOf(const absl::Status& error) { return absl::IsCancelled(error) ? kStopped : kBadInput; }

int ReportFailure(const absl::Status& status) {
  std::fputs(StrCat("onnxtrain: failed: ", FieldsToFlags(ToStd(status.message())), "\n").c_str(), stderr);
  return kFailed;
}

int ReportUnmet(const std::vector<std::string>& unmet) {
  for (const std::string& line : unmet) std::fprintf(stderr, "onnxtrain: required: %s\n", line.c_str());
  return unmet.empty() ? kDone : kRequirement;
}

absl::Status Print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return absl::OkStatus();
  return errno == EPIPE ? absl::OkStatus() : Invalid("stdout: ", std::strerror(errno));
}

absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const TrainConfig& config) {
  if (const std::string limit = DescribeThreadLimit(config); !limit.empty()) LogInfo(config, limit);
  TrainConfig with_threads = config;
  with_threads.threads = ComputeThreads(config);
  SetEnvironment(static_cast<int>(with_threads.threads));
  return MakeBackend(with_threads);
}

absl::StatusOr<std::unique_ptr<Backend>> LoadNamedBackend(TrainConfig config, const std::string& name) {
  config.backend = name;
  return LoadBackend(config);
}

std::string DescribeBackend(const Backend& backend) {
  std::string text = backend.description();
  const std::string prefix = backend.name() + ": ";
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  return StrCat(backend.name(), " on ", backend.device(), ": ", text);
}

std::string DescribeModel(const OnnxModel& model) {
  const auto opsets = model.opsets();
  const auto opset = opsets.find("");
  std::string text = model.path();
  if (!model.producer().empty()) StrAppend(&text, ", by ", model.producer());
  if (opset != opsets.end()) StrAppend(&text, ", opset ", opset->second);
  return text;
}

std::optional<TerminalSize> StdoutTerminal() {
  if (isatty(STDOUT_FILENO) != 1) return std::nullopt;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return TerminalSize();
  return TerminalSize{size.ws_col, size.ws_row};
}

}  // namespace onnxtrain::cli
