#include "backends/torch/fuse/gpu_compiler.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/machine.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

struct PreparedLaunch {
  void* function;
  unsigned blocks, threads;
};

class GpuKernel : public CompiledKernel {
 public:
  GpuKernel(GpuDriver* driver, std::vector<PreparedLaunch> launches)
      : driver_(driver), launches_(std::move(launches)) {}

  absl::Status Launch(std::span<void* const> pointers, int64_t blocks) override {
    for (const PreparedLaunch& launch : launches_) {
      const unsigned count = blocks == 0 ? launch.blocks : static_cast<unsigned>(blocks);
      RETURN_IF_ERROR(driver_->Launch(launch.function, count, launch.threads, pointers));
    }
    return absl::OkStatus();
  }

 private:
  GpuDriver* driver_;
  std::vector<PreparedLaunch> launches_;
};

using Modules = std::map<std::string, absl::StatusOr<std::string>>;  // by key

Modules CompileByThreads(const SourceCompiler& compiler, const std::map<std::string, std::string>& sources) {
  Modules modules;
  std::mutex mutex;
  auto next = sources.begin();
  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (next != sources.end()) {
      const auto& [key, source] = *next++;
      lock.unlock();
      absl::StatusOr<std::string> module = compiler.Compile(source);
      lock.lock();
      modules.emplace(key, std::move(module));
    }
  };
  std::vector<std::jthread> threads(std::min<size_t>(CpuCount(), sources.size()));
  for (std::jthread& thread : threads) thread = std::jthread(work);
  threads.clear();  // joins
  return modules;
}

class GpuCompiler : public KernelCompiler {
 public:
  GpuCompiler(std::unique_ptr<SourceCompiler> compiler, CubinCache cache, std::unique_ptr<GpuDriver> driver)
      : compiler_(std::move(compiler)), cache_(std::move(cache)), driver_(std::move(driver)) {}

  absl::StatusOr<std::shared_ptr<CompiledKernel>> Compile(const GeneratedKernel& kernel) override {
    std::shared_ptr<CompiledKernel>& known = kernels_[kernel.source];
    if (known == nullptr) {
      ASSIGN_OR_RETURN(known, Load(kernel));
    }
    return known;
  }

  absl::Status CompileAll(std::span<const GeneratedKernel> kernels) override {
    std::map<std::string, std::string> missing;  // sources by key
    for (const GeneratedKernel& kernel : kernels) {
      const std::string key = GetKey(kernel.source);
      if (!kernels_.contains(kernel.source) && !modules_.contains(key) && !cache_.Find(key))
        missing.emplace(key, kernel.source);
    }
    for (auto& [key, module] : CompileByThreads(*compiler_, missing)) {
      if (!module.ok()) continue;
      cache_.Store(key, *module);
      modules_.emplace(key, *std::move(module));
    }
    return absl::OkStatus();
  }

 private:
  std::string GetKey(const std::string& source) const {
    const std::string text = StrCat(compiler_->version(), "\n", source);
    return Sha256Hex(std::as_bytes(std::span<const char>(text)));
  }

  absl::StatusOr<std::shared_ptr<CompiledKernel>> Load(const GeneratedKernel& kernel) {
    ASSIGN_OR_RETURN(void* module, LoadModule(kernel.source));
    std::vector<PreparedLaunch> launches;
    for (const KernelLaunch& launch : kernel.launches) {
      if (launch.blocks > std::numeric_limits<int32_t>::max())
        return absl::UnimplementedError("a kernel of more than 2^31 blocks");
      ASSIGN_OR_RETURN(void* function, driver_->FindFunction(module, launch.function));
      launches.push_back({function, static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.threads)});
    }
    return std::make_shared<GpuKernel>(driver_.get(), std::move(launches));
  }

  // A cached module that the driver refuses is compiled again.
  absl::StatusOr<void*> LoadModule(const std::string& source) {
    const std::string key = GetKey(source);
    if (auto known = modules_.extract(key)) return driver_->LoadModule(known.mapped());
    if (const auto cached = cache_.Find(key)) {
      if (auto module = driver_->LoadModule(*cached); module.ok()) return module;
    }
    ASSIGN_OR_RETURN(const std::string module, compiler_->Compile(source));
    cache_.Store(key, module);
    return driver_->LoadModule(module);
  }

  const std::unique_ptr<SourceCompiler> compiler_;
  const CubinCache cache_;
  const std::unique_ptr<GpuDriver> driver_;
  std::map<std::string, std::shared_ptr<CompiledKernel>> kernels_;  // by source
  std::map<std::string, std::string> modules_;                      // by key: compiled by CompileAll, not loaded yet
};

}  // namespace

std::unique_ptr<KernelCompiler> MakeGpuCompiler(std::unique_ptr<SourceCompiler> compiler, CubinCache cache,
                                                std::unique_ptr<GpuDriver> driver) {
  return std::make_unique<GpuCompiler>(std::move(compiler), std::move(cache), std::move(driver));
}

absl::StatusOr<std::unique_ptr<KernelCompiler>> LoadGpuCompiler(int architecture, std::span<const std::string> folders,
                                                                std::function<void*()> current_stream) {
  ASSIGN_OR_RETURN(auto driver, LoadGpuDriver(std::move(current_stream)));
  ASSIGN_OR_RETURN(auto compiler, LoadNvrtc(architecture, folders));
  RETURN_IF_ERROR(compiler->Compile("extern \"C\" __global__ void probe() {}").status());
  return MakeGpuCompiler(std::move(compiler), CubinCache(CubinCache::DefaultFolder()), std::move(driver));
}

KernelCompiler* ReleaseOrWarn(absl::StatusOr<std::unique_ptr<KernelCompiler>> compiler) {
  if (compiler.ok()) return compiler->release();
  LOG(WARNING) << "operators are not fused on the GPU: " << compiler.status().message();
  return nullptr;
}

}  // namespace onnxtrain::aten
