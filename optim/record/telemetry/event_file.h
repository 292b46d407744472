// Writes TensorBoard's event files: events.out.tfevents.SECONDS.HOST.PID.
//
// A file is a sequence of records: length (u64), its masked CRC-32C (u32), data, its masked CRC-32C. The data is an
// Event of tensorflow/core/util/event.proto; the mask is that of tensorflow/core/lib/hash/crc32c.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/record/telemetry/histogram.h"

namespace onnxtrain {

using Scalars = std::vector<std::pair<std::string, double>>;  // by tag: "train/loss"

// The scalars of an event, with the tags that other trainers use.
Scalars ScalarsOf(const TrainEvent& event, bool has_accuracy);

// A record, as it stands in the file.
std::string EventRecord(double wall_time, int64_t step, const Scalars& scalars);

class EventFile {
 public:
  // Creates a new file in the folder, and the folder. `after_step` above 0: the run goes on from there, and readers
  // drop what earlier files of the folder hold of later steps.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder, int64_t after_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Keeps the first failure for status(): a full disk must not end the training. Leaves out NaN and infinities.
  void Write(int64_t step, const Scalars& scalars);
  // Nothing where it has counted nothing.
  void Write(int64_t step, const std::string& tag, const Histogram& histogram);
  void WriteGraph(const std::string& graph_def);  // graph_def.h
  const absl::Status& status() const { return status_; }

 private:
  EventFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void Append(std::string_view bytes);

  std::string path_;
  int fd_;
  absl::Status status_;
};

}  // namespace onnxtrain
