#include "backends/torch/fuse/gpu_compiler.h"

#include <limits>
#include <map>
#include <span>
#include <vector>

#include "frontend/base/log.h"
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

  absl::Status Launch(std::span<void* const> pointers) override {
    for (const auto& [function, blocks, threads] : launches_)
      RETURN_IF_ERROR(driver_->Launch(function, blocks, threads, pointers));
    return absl::OkStatus();
  }

 private:
  GpuDriver* driver_;
  std::vector<PreparedLaunch> launches_;
};

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

 private:
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
    const std::string text = StrCat(compiler_->version(), "\n", source);
    const std::string key = Sha256Hex(std::as_bytes(std::span<const char>(text)));
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
