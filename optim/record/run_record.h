// What a run has written to its folder so far, as numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

using Series = std::vector<std::pair<double, double>>;  // (update, value), ascending; finite values only

// What a learning rate range test measured (lr_range_test.h).
struct RateTestRecord {
  Series loss, smooth;  // by rate
  double lr = 0;        // found; 0: none
  std::string why;
};

struct RunRecord {
  std::string folder;
  // By name without "eval_": "loss", "accuracy", "lr", "grad_norm", "samples_per_second", "data_wait", "busy_cpus",
  // "resident_bytes", "seconds", "epoch"; of evaluations "loss", "accuracy" and metrics.
  std::map<std::string, Series> train, eval;
  std::string summary;  // the text of summary.json; "" before the run has ended for the first time
  std::optional<RateTestRecord> rate_test;
  bool running = false;  // a process is writing to the folder
};

// Reads metrics.jsonl, up to a last line that is still being written, and summary.json. Fails where there is no
// metrics.jsonl and no process that will write one, and names its line where one is not JSON. The same for the file of
// a range test, where there is one.
absl::StatusOr<RunRecord> ReadRun(const std::string& folder);

// The name of the run's folder.
std::string RunName(const RunRecord& run);
// Names of all evaluation metrics of the runs but loss and accuracy.
std::set<std::string> OtherMetrics(const std::vector<RunRecord>& runs);

// Null where there is none of that name.
const Series* FindSeries(const std::map<std::string, Series>& all, const std::string& name);

}  // namespace onnxtrain
