#include "backends/torch/cuda/upload_device.h"

#include <array>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "backends/torch/device_scope.h"

namespace onnxtrain::aten {
namespace {

class CudaUploadDevice : public UploadDevice {
 public:
  explicit CudaUploadDevice(c10::Device device)
      : device_(device),
        runs_(DeviceStream(device)),
        transfers_(c10::impl::VirtualGuardImpl(device.type())
                       .getStreamFromGlobalPool(runs_.device(), /*isHighPriority=*/false)) {}

  void Resize(size_t stage, size_t bytes) override {
    const DeviceScope scope(device_);
    const auto size = static_cast<int64_t>(bytes);
    stages_[stage].pinned = at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    stages_[stage].device = at::empty({size}, at::TensorOptions().dtype(at::kByte).device(device_));
  }

  void Fill(size_t stage, std::span<const std::byte> bytes) override {
    std::memcpy(stages_[stage].pinned.data_ptr(), bytes.data(), bytes.size());
  }

  void Upload(size_t stage, size_t bytes) override {
    const DeviceScope scope(device_);
    const c10::StreamGuard guard(transfers_);
    Part(stages_[stage].device, bytes).copy_(Part(stages_[stage].pinned, bytes), /*non_blocking=*/true);
  }

  void Place(size_t stage, std::byte* device_to, size_t bytes) override {
    const DeviceScope scope(device_);
    at::from_blob(device_to, {static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device_))
        .copy_(Part(stages_[stage].device, bytes), /*non_blocking=*/true);
  }

  void Record(size_t stage, Queue queue) override { Event(stage, queue).record(Stream(queue)); }
  void Await(size_t stage, Queue event_of) override {
    Event(stage, event_of).block(Stream(event_of == Queue::kRuns ? Queue::kTransfers : Queue::kRuns));
  }
  void Finish(size_t stage, Queue event_of) override { Event(stage, event_of).synchronize(); }

 private:
  struct Staging {
    at::Tensor pinned, device;
    std::array<c10::Event, 2> events = {c10::Event(c10::kCUDA), c10::Event(c10::kCUDA)};  // by queue
  };

  static at::Tensor Part(const at::Tensor& bytes, size_t size) {
    return bytes.narrow(0, 0, static_cast<int64_t>(size));
  }
  c10::Event& Event(size_t stage, Queue queue) { return stages_[stage].events[static_cast<size_t>(queue)]; }
  c10::Stream Stream(Queue queue) const { return queue == Queue::kRuns ? runs_ : transfers_; }

  const c10::Device device_;
  const c10::Stream runs_;
  const c10::Stream transfers_;
  std::array<Staging, UploadRing::kStages> stages_;
};

}  // namespace

std::unique_ptr<UploadDevice> MakeUploadDevice(c10::Device device) {
  return std::make_unique<CudaUploadDevice>(device);
}

}  // namespace onnxtrain::aten
