// Implements cuda.h. Only this folder includes headers of CUDA.
#include "backends/torch/cuda.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "backends/torch/fuse/gpu_compiler.h"
#include "backends/torch/guard.h"
#include "backends/torch/nccl/nccl_collectives.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {
namespace {

// The scratch memory pool of recordings. libtorch frees it with the last recording, after which its id is invalid.
struct Pool {
  const at::cuda::MempoolId_t id = at::cuda::graph_pool_handle();
};

class GraphRecording : public Recording {
 public:
  GraphRecording(std::unique_ptr<at::cuda::CUDAGraph> graph, std::shared_ptr<Pool> pool)
      : pool_(std::move(pool)), graph_(std::move(graph)) {}
  void Start() override { graph_->replay(); }

 private:
  const std::shared_ptr<Pool> pool_;  // outlives the graph
  const std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

class GraphRecorder : public Recorder {
 public:
  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& run) override {
    std::shared_ptr<Pool> pool = pool_.lock();
    if (pool == nullptr) pool_ = pool = std::make_shared<Pool>();
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // The mode "thread local" lets other threads allocate pinned memory meanwhile; "global" would forbid it.
    RETURN_IF_ERROR(CatchTorchErrors("", [&] { graph->capture_begin(pool->id, cudaStreamCaptureModeThreadLocal); }));
    const absl::Status recorded = CatchTorchErrors("", run);
    // Ends the capture even after an error, because the stream accepts no other work until then.
    const absl::Status ended = CatchTorchErrors("", [&] { graph->capture_end(); });
    RETURN_IF_ERROR(recorded);
    RETURN_IF_ERROR(ended);
    return std::make_unique<GraphRecording>(std::move(graph), std::move(pool));
  }

 private:
  std::weak_ptr<Pool> pool_;  // expired: no recording exists
};

// Returns the folders of CUDA libraries of a wheel, in site-packages/nvidia next to libtorch.
std::vector<std::string> FindLibraryFolders(std::initializer_list<const char*> packages_of_nvidia) {
  namespace fs = std::filesystem;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &info) == 0) return {};
  const fs::path packages = fs::path(info.dli_fname).parent_path() / "../../nvidia";
  std::vector<std::string> folders;
  for (const char* package : packages_of_nvidia) folders.push_back(packages / package / "lib");
  return folders;
}

KernelCompiler* LoadCompiler(c10::DeviceIndex index) {
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(index);
  return ReleaseOrWarn(LoadGpuCompiler(10 * properties->major + properties->minor,
                                       FindLibraryFolders({"cu13", "cu12", "cuda_nvrtc"}),
                                       [] { return static_cast<void*>(at::cuda::getCurrentCUDAStream().stream()); }));
}

class CudaQueue : public DeviceQueue {
 public:
  explicit CudaQueue(c10::Device device) : device_(device), stream_(DeviceStream(device)) {}

  void Submit(const std::function<void(void* stream)>& start) override {
    const DeviceScope scope(device_);
    start(stream_.stream());
  }
  absl::Status Mark() override {
    return CatchTorchErrors("", [this] { mark_.record(stream_); });
  }
  absl::StatusOr<bool> ReachedMark() override {
    bool reached = false;
    RETURN_IF_ERROR(CatchTorchErrors("", [&] { reached = mark_.query(); }));
    return reached;
  }

 private:
  const c10::Device device_;
  const at::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent mark_;
};

// The queues and memory of UploadRing on a CUDA device.
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

// Creates one object per CUDA device and never frees it. Returns null for other devices.
template <typename T>
class PerDevice {
 public:
  T* Find(c10::Device device, const std::function<T*(c10::DeviceIndex)>& make) {
    if (!device.is_cuda()) return nullptr;
    const c10::DeviceIndex index = DeviceStream(device).device_index();
    const std::lock_guard lock(mutex_);
    const auto it = made_.find(index);
    return it != made_.end() ? it->second : made_.emplace(index, make(index)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, T*> made_;
};

}  // namespace

Recorder* FindRecorder(c10::Device device) {
  static auto* recorders = new PerDevice<Recorder>;
  return recorders->Find(device, [](c10::DeviceIndex) { return new GraphRecorder; });
}

UploadRing* FindUploadRing(c10::Device device) {
  static auto* rings = new PerDevice<UploadRing>;
  return rings->Find(device, [&](c10::DeviceIndex) { return new UploadRing(new CudaUploadDevice(device)); });
}

KernelCompiler* FindKernelCompiler(c10::Device device) {
  static auto* compilers = new PerDevice<KernelCompiler>;
  return compilers->Find(device, LoadCompiler);
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

absl::StatusOr<std::unique_ptr<Collectives>> MeetOnDevice(c10::Device device, Collectives& host) {
  if (!device.is_cuda()) return nullptr;
  static const auto* nccl = new absl::StatusOr<const Nccl*>(LoadNccl(FindLibraryFolders({"nccl"})));
  return MeetOverNccl(*nccl, std::make_unique<CudaQueue>(device), host);
}

}  // namespace onnxtrain::aten
