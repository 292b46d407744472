// Writes TensorBoard's event files: scalars, histograms of weights and gradients, and the graph.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
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

// Writes protobuf's wire format, for the few messages of TensorBoard.
namespace onnxtrain::wire {

static_assert(std::endian::native == std::endian::little, "fixed-size values are little-endian");

enum Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
std::string Raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

inline std::string Key(int field, Type type) { return Varint(static_cast<uint64_t>(field) << 3 | type); }

inline std::string Field(int field, Type type, const std::string& value) {
  std::string bytes = Key(field, type);
  bytes += value;
  return bytes;
}

// A field of bytes, text, a message, or packed numbers.
inline std::string Sub(int field, const std::string& content) {
  std::string bytes = Field(field, kBytes, Varint(content.size()));
  bytes += content;
  return bytes;
}
inline std::string Double(int field, double value) { return Field(field, kFixed64, Raw(value)); }
inline std::string Float(int field, float value) { return Field(field, kFixed32, Raw(value)); }
inline std::string Integer(int field, int64_t value) {
  return Field(field, kVarint, Varint(static_cast<uint64_t>(value)));
}

}  // namespace onnxtrain::wire

namespace onnxtrain {

// Counts numbers in buckets by sign and magnitude, eight per power of two. Ignores NaN and infinities.
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

using Scalars = std::vector<std::pair<std::string, double>>;  // by tag: "train/loss"

// Returns the scalars of an event, with the tags that other trainers use.
Scalars ScalarsOf(const TrainEvent& event, bool has_accuracy);

// Returns a record of an event file.
std::string EventRecord(double wall_time, int64_t step, const Scalars& scalars);

// Writes an event file: events.out.tfevents.SECONDS.HOST.PID. It is a sequence of records: length (u64), its masked
// CRC-32C (u32), data, its masked CRC-32C. The data is an Event of tensorflow/core/util/event.proto; the mask is that
// of tensorflow/core/lib/hash/crc32c.h.
class EventFile {
 public:
  // Creates a file in the folder, and the folder if needed. `after_step` above 0: the run resumes there, and viewers
  // ignore later steps in earlier files of the folder.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder, int64_t after_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Keeps the first error for status(), since a full disk must not end the training. Skips NaN and infinities.
  void Write(int64_t step, const Scalars& scalars);
  // Skips an empty histogram.
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

// Returns a GraphDef (tensorflow/core/framework/graph.proto) of the model's nodes, inputs, outputs and weights. Slashes
// in names, or dots in names without a slash, form the groups that a viewer folds.
std::string GraphDef(const OnnxModel& model);

// Writes histograms of weights and gradients to TensorBoard while a session trains.
class HistogramRecorder {
 public:
  // Records at the first update and after every `every_updates`, or, if that is 0, every `every_seconds`. The objects
  // passed by reference must outlive the recorder.
  HistogramRecorder(Session& session, EventFile& events, const TrainData& data, int64_t every_updates,
                    double every_seconds);

  // Called before each update (TrainObserver::OnBatch). Computes the gradients of the batch an extra time, which does
  // not affect the training. Stops recording, with the reason in status(), if memory does not suffice.
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
