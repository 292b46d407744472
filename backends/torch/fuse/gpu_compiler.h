// Compiles generated kernels for a GPU, with a cache in memory and on disk.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "backends/torch/fuse/kernel_compiler.h"

namespace onnxtrain::aten {

// Keeps compiled kernels on disk, for later processes.

// Files in one folder, each with a digest of its bytes, written atomically: processes may share the folder. A cache
// that cannot be read or written is no error: everything is compiled again.
class CubinCache {
 public:
  // Empty: caches nothing.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // $XDG_CACHE_HOME/onnxtrain/kernels, by default in ~/.cache; empty without a home.
  static std::string DefaultFolder();

  // Returns what was stored under the key (hex digits), or nullopt; damaged files count as absent.
  std::optional<std::string> Find(const std::string& key) const;
  void Store(const std::string& key, const std::string& bytes) const;

 private:
  std::string GetPath(const std::string& key) const;

  std::string folder_;
};

// The CUDA driver, loaded when it is first needed.

// The part of the driver that starts kernels. Handles are the driver's.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  virtual absl::StatusOr<void*> LoadModule(const std::string& module) = 0;  // never unloaded
  virtual absl::StatusOr<void*> FindFunction(void* module, const std::string& name) = 0;
  // Queues a launch on the current stream. `argument` is copied before the call returns.
  virtual absl::Status Launch(void* function, unsigned blocks, unsigned threads, std::span<void* const> argument) = 0;
};

// Uses the context that is current when it is called. `current_stream` returns a CUstream.
absl::StatusOr<std::unique_ptr<GpuDriver>> LoadGpuDriver(std::function<void*()> current_stream);

// NVIDIA's run-time compiler, loaded when it is first needed: neither a build nor a start needs CUDA.

// Compiles CUDA C++ for one architecture.
class SourceCompiler {
 public:
  virtual ~SourceCompiler() = default;
  // Returns the name of compiler and architecture, on which the result depends too: "nvrtc 13.0 sm_90".
  virtual std::string version() const = 0;
  // Returns a module that the driver loads. The error has the compiler's messages. Thread-safe.
  virtual absl::StatusOr<std::string> Compile(const std::string& source) const = 0;
};

// `architecture`: the compute capability, 90 for 9.0. `folders`: where to look for the library besides the usual
// places. With `ptx`, the result is text that does not depend on the installed driver, else machine code.
absl::StatusOr<std::unique_ptr<SourceCompiler>> LoadNvrtc(int architecture, std::span<const std::string> folders,
                                                          bool ptx = false);

std::unique_ptr<KernelCompiler> MakeGpuCompiler(std::unique_ptr<SourceCompiler> compiler, CubinCache cache,
                                                std::unique_ptr<GpuDriver> driver);

// With NVRTC, the installed driver and the user's cache. Fails where one of them is missing or does not know the
// architecture.
absl::StatusOr<std::unique_ptr<KernelCompiler>> LoadGpuCompiler(int architecture, std::span<const std::string> folders,
                                                                std::function<void*()> current_stream);

// Returns the compiler, or null and logs why kernels of single operators will run.
KernelCompiler* ReleaseOrWarn(absl::StatusOr<std::unique_ptr<KernelCompiler>> compiler);

}  // namespace onnxtrain::aten
