// Compiles generated kernels for a GPU, with a cache in memory and on disk.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "backends/torch/fuse/cubin_cache.h"
#include "backends/torch/fuse/gpu_driver.h"
#include "backends/torch/fuse/kernel_compiler.h"
#include "backends/torch/fuse/nvrtc.h"

namespace onnxtrain::aten {

std::unique_ptr<KernelCompiler> MakeGpuCompiler(std::unique_ptr<SourceCompiler> compiler, CubinCache cache,
                                                std::unique_ptr<GpuDriver> driver);

// With NVRTC, the installed driver and the user's cache. Fails where one of them is missing or does not know the
// architecture (nvrtc.h).
absl::StatusOr<std::unique_ptr<KernelCompiler>> LoadGpuCompiler(int architecture, std::span<const std::string> folders,
                                                                std::function<void*()> current_stream);

// Returns the compiler, or null and logs why kernels of single operators will run.
KernelCompiler* ReleaseOrWarn(absl::StatusOr<std::unique_ptr<KernelCompiler>> compiler);

}  // namespace onnxtrain::aten
