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

// "runs/NAME-YYYYMMDD-HHMMSS" for NAME.onnx, with -2, -3, … where that is taken.
std::string DefaultOutputFolder(const std::string& model_path);

// The files that a command reads, which it must not write to. Of models that is their own file alone where nothing is
// at `target`: the others are known once it has been read.
std::vector<std::string> ListInputs(const TrainConfig& config, const std::string& target);

// Fails if `target` is one of the inputs (the same file, through links or other spellings too).
absl::Status CheckNotInput(const std::string& target, const std::vector<std::string>& inputs);

inline constexpr char kEventsFolder[] = "tensorboard";  // in the folder of a run
inline constexpr char kRateTestFile[] = "lr_find.json";

// What to do with a run that the folder holds.
enum class OldRun : uint8_t { kRefuse, kReplace, kContinue };

class OutputFolder {
 public:
  // Creates the folder where it is missing and takes an exclusive lock on it (flock) that lasts as long as the object
  // and the process. Fails if it holds a run that is to be refused, if another process trains into it, if a file that
  // the run would write is one of `inputs`.
  static absl::StatusOr<std::unique_ptr<OutputFolder>> Open(const std::string& path, OldRun old_run,
                                                            const std::vector<std::string>& inputs);
  // Removes a folder that Open made and nobody has written to.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Removes the files and checkpoints of the old run and no others. Called when the new run is certain to begin.
  absl::Status RemoveOldRun();

  // Finds the folder again where it was moved, and makes it again where it was removed; path() follows. Returns what
  // has happened; "": nothing.
  absl::StatusOr<std::string> FindAgain();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  OutputFolder(std::string path, int fd, bool made) : path_(std::move(path)), fd_(fd), made_(made) {}

  std::string path_;
  int fd_;
  bool made_;
};

// Is a process writing a run to this folder?
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
