// Runs a fixed list of kernels by a recorded graph of the device, which starts them all with one call.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace onnxtrain::aten {

// Work of a device, recorded once and started any number of times.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void Start() = 0;  // may throw what ATen throws
};

class Recorder {
 public:
  virtual ~Recorder() = default;
  // Calls `run`, whose kernels are recorded and not started. An error if one of them cannot be recorded: the device is
  // as before, and `run` may be called as usual.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& run) = 0;
};

// The first runs start kernel by kernel: libraries choose algorithms and allocate workspaces in them. The next run
// records, and that one and all later ones start the recording. Where recording fails, which is logged, every run
// starts kernel by kernel. Not thread-safe.
class Replay {
 public:
  static constexpr int kWarmUps = 3;

  // Null: never records. Must outlive this.
  explicit Replay(Recorder* recorder) : recorder_(recorder) {}

  // May throw what `run` throws.
  void Run(const std::function<void()>& run);
  // The kernels or their addresses have changed.
  void Reset();

 private:
  void Record(const std::function<void()>& run);

  Recorder* recorder_;  // null too once it has refused
  int runs_ = 0;
  std::unique_ptr<Recording> recording_;
};

}  // namespace onnxtrain::aten
