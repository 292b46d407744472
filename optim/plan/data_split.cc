#include "optim/plan/data_split.h"

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/split.h"
#include "optim/plan/folders.h"

namespace onnxtrain {

TrainConfig WithSplitFiles(TrainConfig config) {
  if (!FindFolderColumns(config, std::nullopt, config.data, true).empty()) return config;
  const auto files = FindSplitFiles(config.data);
  if (!files.has_value()) return config;
  config.data = files->train;
  if (config.eval_data.empty() && config.eval_split.empty()) config.eval_data = files->eval;
  return config;
}

std::string FindEvalFile(const TrainConfig& config, bool want_label) {
  if (!FindFolderColumns(config, std::nullopt, config.data, true).empty()) return config.data;
  const auto files = FindSplitFiles(config.data);
  if (!files.has_value()) return config.data;
  const std::string& file = want_label || files->test.empty() ? files->eval : files->test;
  return file.empty() ? files->train : file;
}

std::string SplitColumn(const TrainConfig& config) {
  const bool fraction = ParseNumber(config.eval_split).ok() || config.eval_split.starts_with("last:");
  return fraction ? "" : config.eval_split;
}

absl::StatusOr<HeldOut> HoldOutSamples(const TrainConfig& config, const Dataset& data, const DatasetOptions& options) {
  if (data.size() < 2) return Invalid("`eval_split`: ", data.Describe(0), ": is the only sample: it cannot be split");
  HeldOut held_out;
  if (const std::string column = SplitColumn(config); !column.empty()) {
    held_out.text = StrCat("samples that column '", column, "' selects");
    ASSIGN_OR_RETURN(held_out.rows, SplitByColumn(data.size(), config.data, options, column));
    return held_out;
  }
  const auto split = ParseSplit(config.eval_split);
  if (!split.ok()) return Annotate(split.status(), "`eval_split`: ");
  const std::string part = StrCat(FormatNumber(100 * split->fraction), "% of the data");
  held_out.text = split->last ? StrCat("the last ", part) : StrCat("about ", part, ", by hash");
  held_out.rows = split->last ? SplitAtEnd(data.size(), split->fraction)
                              : SplitByHash(data, split->fraction, static_cast<uint64_t>(config.seed));
  return held_out;
}

}  // namespace onnxtrain
