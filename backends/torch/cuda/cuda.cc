// CUDA graphs and memory. Only this file includes headers of CUDA.
#include "backends/torch/cuda.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "backends/torch/device_scope.h"
#include "backends/torch/guard.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {
namespace {

class GraphRecording : public Recording {
 public:
  explicit GraphRecording(std::unique_ptr<at::cuda::CUDAGraph> graph) : graph_(std::move(graph)) {}
  void Start() override { graph_->replay(); }

 private:
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

class GraphRecorder : public Recorder {
 public:
  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& run) override {
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // Other threads may allocate pinned memory meanwhile, which the mode "global" would forbid.
    RETURN_IF_ERROR(CatchTorchErrors("", [&] { graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal); }));
    const absl::Status recorded = CatchTorchErrors("", run);
    // Ends the capture in any case: without that the stream takes no more work.
    const absl::Status ended = CatchTorchErrors("", [&] { graph->capture_end(); });
    RETURN_IF_ERROR(recorded);
    RETURN_IF_ERROR(ended);
    return std::make_unique<GraphRecording>(std::move(graph));
  }

 private:
  const at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
};

}  // namespace

Recorder* FindRecorder(c10::Device device) {
  if (!device.is_cuda()) return nullptr;
  static std::mutex mutex;
  static auto* recorders = new std::map<c10::DeviceIndex, std::unique_ptr<GraphRecorder>>;
  const c10::DeviceIndex index = DeviceStream(device).device_index();
  const std::lock_guard lock(mutex);
  std::unique_ptr<GraphRecorder>& recorder = (*recorders)[index];
  if (recorder == nullptr) recorder = std::make_unique<GraphRecorder>();
  return recorder.get();
}

size_t FreeDeviceMemory(c10::Device device) {
  size_t free = std::numeric_limits<size_t>::max();
  const absl::Status known = CatchTorchErrors("", [&] {
    const DeviceScope scope(device);
    const c10::DeviceIndex index = DeviceStream(device).device_index();
    auto* allocator = c10::cuda::CUDACachingAllocator::get();
    const auto stats = allocator->getDeviceStats(index);
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const int64_t idle = stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
    free = allocator->getMemoryInfo(index).first + static_cast<size_t>(std::max<int64_t>(idle, 0));
  });
  return known.ok() ? free : std::numeric_limits<size_t>::max();
}

}  // namespace onnxtrain::aten
