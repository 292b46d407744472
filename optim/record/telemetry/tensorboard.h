// Writes TensorBoard's event files: scalars, histograms of weights and gradients, and the graph.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "optim/loop/trainer.h"
#include "optim/step/global_batch.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Distribution of many numbers, as TensorBoard shows it.

// Counts numbers in buckets of their sign and size, eight for each power of two. Leaves out NaN and infinities.
class Histogram {
 public:
  void Add(const HostTensor& tensor);
  int64_t count() const { return count_; }
  // A HistogramProto of tensorflow/core/framework/summary.proto.
  std::string Proto() const;

 private:
  static constexpr int kBuckets = 255 << 3;  // below infinity
  void AddOne(float value);
  // Appends a bucket of the numbers up to `limit`, from the limit before or, with an empty bucket in between, `from`.
  static void Append(double from, double limit, int64_t count, double* last, std::string* limits, std::string* counts);

  std::array<int64_t, kBuckets> positive_ = {}, negative_ = {};  // by the leading bits of the magnitude
  int64_t count_ = 0;
  double min_ = std::numeric_limits<double>::infinity(), max_ = -min_, sum_ = 0, sum_squares_ = 0;
};

// Writes TensorBoard's event files: events.out.tfevents.SECONDS.HOST.PID.
//
// A file is a sequence of records: length (u64), its masked CRC-32C (u32), data, its masked CRC-32C. The data is an
// Event of tensorflow/core/util/event.proto; the mask is that of tensorflow/core/lib/hash/crc32c.h.

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
  void WriteGraph(const std::string& graph_def);
  const absl::Status& status() const { return status_; }

 private:
  EventFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void Append(std::string_view bytes);

  std::string path_;
  int fd_;
  absl::Status status_;
};

// The model as TensorBoard's graph.

// Returns a GraphDef (tensorflow/core/framework/graph.proto) of the model's nodes, inputs, outputs and weights. Slashes
// and, in names without a slash, dots make the groups that a viewer folds.
std::string GraphDef(const OnnxModel& model);

// Writes histograms of weights and gradients to TensorBoard while a session trains.

class HistogramRecorder {
 public:
  // At the first update of the run and after every `every_updates`, or where that is 0 every `every_seconds`. All of
  // these must outlive it.
  HistogramRecorder(Session& session, EventFile& events, const TrainData& data, int64_t every_updates,
                    double every_seconds);

  // Called before each update (TrainObserver::OnBatch). Computes the gradients of the batch once more, which changes
  // nothing of the training. Where memory does not suffice for that, no more histograms are written: see status().
  absl::Status OnBatch(int64_t update, const Batch& batch);
  const absl::Status& status() const { return status_; }

 private:
  bool IsDue(int64_t update) const;
  absl::Status Write(int64_t update);

  Session& session_;
  EventFile& events_;
  const int64_t every_updates_;
  const double every_seconds_;
  std::chrono::steady_clock::time_point written_at_ = std::chrono::steady_clock::now();
  GlobalBatch batch_;
  absl::Status status_;
};

}  // namespace onnxtrain
