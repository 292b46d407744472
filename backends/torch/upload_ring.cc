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

// Before a stage is reused, the host waits for its last upload, which reads the pinned memory, and the transfer waits
// for its last Place, which reads the device memory. Place is queued before the next run, so that the transfer for the
// run after that need not wait for it.
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

// Grows a stage. The allocator may return memory that queued runs still use; the event makes the transfer wait for
// them.
void UploadRing::Reserve(size_t stage, size_t bytes) {
  if (bytes <= capacity_[stage]) return;
  device_->Finish(stage, Queue::kRuns);
  capacity_[stage] = std::bit_ceil(bytes);
  device_->Resize(stage, capacity_[stage]);
  device_->Record(stage, Queue::kRuns);
}

}  // namespace onnxtrain::aten
