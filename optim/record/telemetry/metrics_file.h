// Writes metrics.jsonl, one JSON object per event. Each line is one write(2), so readers always see whole lines.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"

namespace onnxtrain {

// Returns one line without its newline. Keys of a step: event step epoch loss accuracy? lr grad_norm skipped
// loss_scale? samples_per_second data_wait busy_cpus resident_bytes machine_busy_cpus disk_read_rate
// disk_write_rate gpuN_{utilization,memory_bytes,watts,celsius}? seconds, and where updates since the last report
// were outliers (statistics.h): outliers (their number), loss_outlier? loss_outlier_step? grad_norm_outlier?
// grad_norm_outlier_step?; of an evaluation: event step epoch eval_loss eval_accuracy? eval_METRIC… eval_samples
// seconds. Numbers that are not finite are null.
std::string ToJsonLine(const TrainEvent& event, bool has_accuracy);

class MetricsFile {
 public:
  // Truncates the file.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Create(const std::string& path, bool has_accuracy);
  // Appends to the lines that a run had written before `position`, and removes later ones.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Continue(const std::string& path, bool has_accuracy,
                                                               const LoopPosition& position);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Keeps the first error for status(), since a full disk must not end the training.
  void Write(const TrainEvent& event);
  const absl::Status& status() const { return status_; }

 private:
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path, int flags, bool has_accuracy);
  MetricsFile(std::string path, int fd, bool has_accuracy)
      : path_(std::move(path)), fd_(fd), has_accuracy_(has_accuracy) {}

  std::string path_;
  int fd_;
  bool has_accuracy_;
  absl::Status status_;
};

}  // namespace onnxtrain
