// Opens and locks the folder of a run, and reads back the numbers that a run has written to it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Returns "runs/NAME-YYYYMMDD-HHMMSS" for NAME.onnx, with -2, -3, … appended if that path exists.
std::string DefaultOutputFolder(const std::string& model_path);

// Returns the files that a command reads and must not overwrite. Files of external data are listed only if `target`
// exists: otherwise the model is not read for them.
std::vector<std::string> ListInputs(const TrainConfig& config, const std::string& target);

// Fails if `target` is the same file as one of the inputs, also through links.
absl::Status CheckNotInput(const std::string& target, const std::vector<std::string>& inputs);

inline constexpr char kEventsFolder[] = "tensorboard";  // in the folder of a run
inline constexpr char kRateTestFile[] = "lr_find.json";
inline constexpr char kSamplesFile[] = "samples.jsonl";  // sample_answers.h

// Selects how to treat an existing run in the folder.
enum class OldRun : uint8_t { kRefuse, kReplace, kContinue };

class OutputFolder {
 public:
  // Creates the folder if it is missing, and locks it (flock) for the lifetime of the object. Fails if it holds a run
  // and `old_run` is kRefuse, if another process holds the lock, or if the run would overwrite one of `inputs`.
  static absl::StatusOr<std::unique_ptr<OutputFolder>> Open(const std::string& path, OldRun old_run,
                                                            const std::vector<std::string>& inputs);
  // Removes the folder if Open created it and it is empty.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Removes the files and checkpoints of the old run and no others. Call it when the new run is certain to begin.
  absl::Status RemoveOldRun();

  // Follows a folder that was moved, recreates one that was removed, and updates path(). Returns a message about it; ""
  // if the folder is unchanged.
  absl::StatusOr<std::string> FindAgain();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  OutputFolder(std::string path, int fd, bool made) : path_(std::move(path)), fd_(fd), made_(made) {}

  std::string path_;
  int fd_;
  bool made_;
};

// Returns true if a process holds the lock of this folder.
bool IsLocked(const std::string& path);

using Series = std::vector<std::pair<double, double>>;  // (update, value), ascending; finite values only

// The measurements of a learning rate range test (lr_range_test.h).
struct RateTestRecord {
  Series loss, smooth;  // by rate
  double lr = 0;        // found; 0: none
  std::string why;
};

struct RunRecord {
  std::string folder;
  // Metrics by name without "eval_": "loss", "accuracy", "lr", "grad_norm", "samples_per_second", "data_wait",
  // "busy_cpus", "resident_bytes", "seconds", "epoch"; of evaluations "loss", "accuracy" and metrics.
  std::map<std::string, Series> train, eval;
  std::string summary;  // the text of summary.json; "" before the run has ended for the first time
  std::optional<RateTestRecord> rate_test;
  bool running = false;  // a process is writing to the folder
};

// Reads metrics.jsonl (without an incomplete last line), summary.json and lr_find.json as far as they exist. Fails if
// there is no metrics.jsonl and no process holds the lock, or if a line is not JSON, which the error names.
absl::StatusOr<RunRecord> ReadRun(const std::string& folder);

// Returns the last component of the run's folder.
std::string RunName(const RunRecord& run);
// Returns the names of all evaluation metrics of the runs but loss and accuracy.
std::set<std::string> OtherMetrics(const std::vector<RunRecord>& runs);

// Returns null if there is no series of that name.
const Series* FindSeries(const std::map<std::string, Series>& all, const std::string& name);

}  // namespace onnxtrain
