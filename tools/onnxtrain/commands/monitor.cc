// onnxtrain monitor: follows a run that another process trains.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "frontend/base/status.h"
#include "optim/record/run_folder.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/report/html_page.h"
#include "tools/onnxtrain/report/run_table.h"

namespace onnxtrain::cli {
namespace {

constexpr size_t kWidest = 120, kPlotRows = 5;

struct Plot {
  const char* title;
  const Series* series;
};

std::vector<Plot> FindPlots(const RunRecord& run) {
  const Plot all[] = {{"training loss", FindSeries(run.train, "loss")},
                      {"evaluation loss", FindSeries(run.eval, "loss")},
                      {"evaluation accuracy", FindSeries(run.eval, "accuracy")},
                      {"samples/s", FindSeries(run.train, "samples_per_second")}};
  std::vector<Plot> plots;
  for (const Plot& plot : all) {
    if (plot.series != nullptr && plot.series->size() > 1) plots.push_back(plot);
  }
  return plots;
}

// Returns as many plots as fit into `rows`, at least one.
std::string Plots(std::vector<Plot> plots, size_t width, size_t rows) {
  constexpr size_t kAround = 2, kLeast = 2;  // a blank line and the title
  const size_t room = std::max<size_t>(1, rows / (kAround + kLeast));
  plots.resize(std::min(plots.size(), room));
  if (plots.empty()) return "";
  const size_t height = std::clamp(rows / plots.size(), kAround + kLeast, kAround + kPlotRows) - kAround;
  std::string text;
  for (const Plot& plot : plots) {
    StrAppend(&text, "\n", plot.title, "  ", PlotNumber(plot.series->back().second), "\n");
    for (const std::string& line : TerminalPlot(*plot.series, width, height)) StrAppend(&text, line, "\n");
  }
  return text;
}

std::string Page(const RunRecord& run, const TerminalSize& size) {
  const std::string table = FormatTable(CompareRuns({run}), size.columns);
  const auto used = static_cast<size_t>(std::ranges::count(table, '\n')) + 1;  // and the line of the cursor
  return table + Plots(FindPlots(run), std::min(size.columns, kWidest), size.rows > used ? size.rows - used : 0);
}

}  // namespace

absl::StatusOr<int> RunMonitor(const TrainConfig& config) {
  if (config.runs.size() != 1) return Invalid("monitor: name the folder of one run: onnxtrain monitor runs/a");
  while (true) {
    const std::optional<TerminalSize> terminal = StdoutTerminal();
    ASSIGN_OR_RETURN(const RunRecord run, ReadRun(config.runs[0]));
    const std::string page = Page(run, terminal.value_or(TerminalSize{.columns = 80, .rows = 100}));
    RETURN_IF_ERROR(Print(terminal ? "\033[H\033[2J" + page : page));
    if (!run.running || !terminal) return kDone;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace onnxtrain::cli
