#include "backends/torch/upload_ring.h"

#include <algorithm>
#include <bit>

namespace onnxtrain::aten {

using Queue = UploadDevice::Queue;

void UploadRing::Write(std::byte* device_to, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  for (size_t at = 0; at < bytes.size(); at += kMostBytes)
    WritePiece(device_to + at, bytes.subspan(at, std::min(kMostBytes, bytes.size() - at)));
}

// A stage's pinned memory is free once it was uploaded, which the host waits for, and its device memory once it was
// placed, which the transfer waits for. Placing comes before the next run, so that the transfer for the run after it
// need not wait for that run.
void UploadRing::WritePiece(std::byte* device_to, std::span<const std::byte> bytes) {
  const size_t stage = next_;
  next_ = (next_ + 1) % kStages;
  device_->Finish(stage, Queue::kTransfers);
  Reserve(stage, bytes.size());
  device_->Fill(stage, bytes);
  device_->Await(stage, Queue::kRuns);
  device_->Upload(stage, bytes.size());
  device_->Record(stage, Queue::kTransfers);
  device_->Await(stage, Queue::kTransfers);
  device_->Place(stage, device_to, bytes.size());
  device_->Record(stage, Queue::kRuns);
}

// The allocator may return memory that runs in the queue still use: the event makes the transfer wait for them.
void UploadRing::Reserve(size_t stage, size_t bytes) {
  if (bytes <= capacity_[stage]) return;
  device_->Finish(stage, Queue::kRuns);
  capacity_[stage] = std::bit_ceil(bytes);
  device_->Resize(stage, capacity_[stage]);
  device_->Record(stage, Queue::kRuns);
}

}  // namespace onnxtrain::aten
