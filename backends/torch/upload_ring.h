// Copies host memory to a device while the device computes, through two stages of pinned and device memory and on a
// separate stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace onnxtrain::aten {

// The memory of the stages, and the two queues (streams) of a device: one for runs, one for transfers. Each stage has
// an event per queue. Resize, Fill and Finish act at once; the other functions queue work. All may throw exceptions of
// ATen.
class UploadDevice {
 public:
  enum class Queue : uint8_t { kRuns, kTransfers };

  virtual ~UploadDevice() = default;
  // Gives the stage at least `bytes` of pinned and of device memory. No queued work may use its old memory; work in
  // queue kRuns may still use the new device memory.
  virtual void Resize(size_t stage, size_t bytes) = 0;
  virtual void Fill(size_t stage, std::span<const std::byte> bytes) = 0;     // host memory → pinned memory
  virtual void Upload(size_t stage, size_t bytes) = 0;                       // kTransfers: pinned → device memory
  virtual void Place(size_t stage, std::byte* device_to, size_t bytes) = 0;  // kRuns: device memory → device_to
  virtual void Record(size_t stage, Queue queue) = 0;     // the event occurs when earlier work has finished
  virtual void Await(size_t stage, Queue event_of) = 0;   // the other queue waits for the last event
  virtual void Finish(size_t stage, Queue event_of) = 0;  // the host waits for it; returns at once if there is none
};

// Passes writes through the stages in turn. Thread-safe.
class UploadRing {
 public:
  static constexpr size_t kStages = 2;
  static constexpr size_t kMostBytes = size_t{32} << 20;  // capacity of a stage; longer writes are split

  explicit UploadRing(UploadDevice* device) : device_(device) {}

  // Queues a write to device memory after all runs that have been started. The caller may change `bytes` after the
  // return. Blocks only until the last but one transfer has finished.
  void Write(std::byte* device_to, std::span<const std::byte> bytes);

 private:
  void WritePiece(std::byte* device_to, std::span<const std::byte> bytes);
  void Reserve(size_t stage, size_t bytes);

  UploadDevice* device_;
  std::mutex mutex_;
  std::array<size_t, kStages> capacity_ = {};
  size_t next_ = 0;  // next stage to fill
};

}  // namespace onnxtrain::aten
