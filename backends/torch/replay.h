// Replays a fixed list of kernels from a recorded device graph (a CUDA graph), which starts all of them with one call.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace onnxtrain::aten {

// Device work that was recorded once and may be started any number of times.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void Start() = 0;  // may throw exceptions of ATen
};

class Recorder {
 public:
  virtual ~Recorder() = default;
  // Calls `run`, whose kernels are recorded and not started. Fails if one of them cannot be recorded; the device
  // is then unchanged and `run` may be called directly.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& run) = 0;
};

// Makes the first kWarmUps runs directly, because libraries choose algorithms and allocate workspaces in them. The next
// run makes a recording, which that run and all later ones start. If recording fails, logs the error and makes all runs
// directly. Not thread-safe.
class Replay {
 public:
  static constexpr int kWarmUps = 3;

  // With a null recorder, never records. The recorder must outlive this object.
  explicit Replay(Recorder* recorder) : recorder_(recorder) {}

  // Calls `run` or starts its recording. Propagates exceptions of `run`.
  void Run(const std::function<void()>& run);
  // Drops the recording, because the kernels or their addresses have changed.
  void Reset();

 private:
  void Record(const std::function<void()>& run);

  Recorder* recorder_;  // also null after a failed recording
  int runs_ = 0;
  std::unique_ptr<Recording> recording_;
};

}  // namespace onnxtrain::aten
