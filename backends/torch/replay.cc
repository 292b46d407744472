#include "backends/torch/replay.h"

#include "frontend/base/log.h"

namespace onnxtrain::aten {

void Replay::Run(const std::function<void()>& run) {
  if (recording_ == nullptr && recorder_ != nullptr && runs_ >= kWarmUps) Record(run);
  if (recording_ != nullptr) return recording_->Start();
  run();
  ++runs_;
}

void Replay::Record(const std::function<void()>& run) {
  auto recording = recorder_->Record(run);
  if (recording.ok()) {
    recording_ = *std::move(recording);
  } else {
    LOG(WARNING) << "kernels start one by one: " << recording.status().message();
    recorder_ = nullptr;
  }
}

void Replay::Reset() {
  recording_.reset();
  runs_ = 0;
}

}  // namespace onnxtrain::aten
