// Copies host memory to a device while the device computes: through two stages, pinned memory and device memory
// each, on a queue beside the one of the runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace onnxtrain::aten {

// The memory of the stages, and two queues of a device: of runs and of transfers. Each stage has an event per queue.
// Everything but Resize, Fill and Finish is queued. May throw what ATen throws.
class UploadDevice {
 public:
  enum class Queue : uint8_t { kRuns, kTransfers };

  virtual ~UploadDevice() = default;
  // Gives the stage at least so much pinned and device memory. Nothing that is queued reads or writes its old memory;
  // what is in queue kRuns may still use the new device memory.
  virtual void Resize(size_t stage, size_t bytes) = 0;
  virtual void Fill(size_t stage, std::span<const std::byte> bytes) = 0;     // host memory → pinned memory
  virtual void Upload(size_t stage, size_t bytes) = 0;                       // kTransfers: pinned → device memory
  virtual void Place(size_t stage, std::byte* device_to, size_t bytes) = 0;  // kRuns: device memory → there
  virtual void Record(size_t stage, Queue queue) = 0;     // the event happens when the queue gets here
  virtual void Await(size_t stage, Queue event_of) = 0;   // the other queue waits for the last event
  virtual void Finish(size_t stage, Queue event_of) = 0;  // the host does; at once if there is none
};

// Thread-safe.
class UploadRing {
 public:
  static constexpr size_t kStages = 2;
  static constexpr size_t kMostBytes = size_t{32} << 20;  // of a stage; more is copied in pieces

  explicit UploadRing(UploadDevice* device) : device_(device) {}

  // Queues a write to device memory behind the runs that were started before. `bytes` may change on return. The host
  // waits only until the transfer before the last has ended.
  void Write(std::byte* device_to, std::span<const std::byte> bytes);

 private:
  void WritePiece(std::byte* device_to, std::span<const std::byte> bytes);
  void Reserve(size_t stage, size_t bytes);

  UploadDevice* device_;
  std::mutex mutex_;
  std::array<size_t, kStages> capacity_ = {};
  size_t next_ = 0;  // stage
};

}  // namespace onnxtrain::aten
