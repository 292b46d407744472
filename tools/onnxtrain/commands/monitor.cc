// onnxtrain monitor: follows a run that another process trains.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "frontend/base/status.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/common.h"
#include "tools/onnxtrain/report/run_record.h"
#include "tools/onnxtrain/report/run_table.h"
#include "tools/onnxtrain/report/terminal_plot.h"

namespace onnxtrain::cli {
namespace {

size_t TerminalColumns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string Plots(const RunRecord& run, size_t width) {
  struct Plot {
    const char* title;
    const std::map<std::string, Series>& from;
    const char* name;
  };
  const Plot plots[] = {{"training loss", run.train, "loss"},
                        {"evaluation loss", run.eval, "loss"},
                        {"evaluation accuracy", run.eval, "accuracy"},
                        {"samples/s", run.train, "samples_per_second"}};
  std::string text;
  for (const Plot& plot : plots) {
    const Series* series = FindSeries(plot.from, plot.name);
    if (series == nullptr || series->size() < 2) continue;
    StrAppend(&text, "\n", plot.title, "  ", FormatNumber(series->back().second), "\n");
    for (const std::string& line : TerminalPlot(*series, width, 5)) StrAppend(&text, line, "\n");
  }
  return text;
}

std::string Page(const RunRecord& run, size_t width) { return FormatTable(CompareRuns({run})) + Plots(run, width); }

}  // namespace

absl::StatusOr<int> RunMonitor(const TrainConfig& config) {
  if (config.runs.size() != 1) return Invalid("monitor: name the folder of one run: onnxtrain monitor runs/a");
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  while (true) {
    ASSIGN_OR_RETURN(const RunRecord run, ReadRun(config.runs[0]));
    const std::string page = Page(run, std::min<size_t>(TerminalColumns(), 120));
    RETURN_IF_ERROR(Print(terminal ? "\033[H\033[2J" + page : page));
    if (!run.running || !terminal) return kDone;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace onnxtrain::cli
