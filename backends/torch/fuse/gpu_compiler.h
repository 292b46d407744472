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

// Keeps compiled kernels on disk for later processes: files in one folder, each with a digest of its bytes, written
// atomically, so that processes may share the folder. A cache that cannot be read or written is not an error.
class CubinCache {
 public:
  // Caches nothing if `folder` is "".
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // Returns $XDG_CACHE_HOME/onnxtrain/kernels, by default in ~/.cache; empty if there is no home folder.
  static std::string DefaultFolder();

  // Returns the data stored under the key (hex digits), or nullopt. Damaged files count as absent.
  std::optional<std::string> Find(const std::string& key) const;
  void Store(const std::string& key, const std::string& bytes) const;

 private:
  std::string GetPath(const std::string& key) const;

  std::string folder_;
};

// The functions of the CUDA driver that start kernels. Handles are those of the driver.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  virtual absl::StatusOr<void*> LoadModule(const std::string& module) = 0;  // never unloaded
  virtual absl::StatusOr<void*> FindFunction(void* module, const std::string& name) = 0;
  // Queues a launch on the current stream. `argument` is copied before the call returns.
  virtual absl::Status Launch(void* function, unsigned blocks, unsigned threads, std::span<void* const> argument) = 0;
};

// Loads the driver. Uses the CUDA context that is current at the call. `current_stream` returns a CUstream.
absl::StatusOr<std::unique_ptr<GpuDriver>> LoadGpuDriver(std::function<void*()> current_stream);

// Compiles CUDA C++ for one architecture. Implemented over NVRTC, and by fakes in tests.
class SourceCompiler {
 public:
  virtual ~SourceCompiler() = default;
  // Returns the name of compiler and architecture, which are part of the cache key: "nvrtc 13.0 sm_90".
  virtual std::string version() const = 0;
  // Returns a module for GpuDriver::LoadModule. An error contains the compiler's messages. Thread-safe.
  virtual absl::StatusOr<std::string> Compile(const std::string& source) const = 0;
};

// Loads NVRTC from the search path of the system or `folders`, at run time, so that neither the build nor the start of
// a process needs CUDA. `architecture` is the compute capability, 90 for 9.0. With `ptx`, compiles to PTX, which does
// not depend on the installed driver, else to machine code.
absl::StatusOr<std::unique_ptr<SourceCompiler>> LoadNvrtc(int architecture, std::span<const std::string> folders,
                                                          bool ptx = false);

std::unique_ptr<KernelCompiler> MakeGpuCompiler(std::unique_ptr<SourceCompiler> compiler, CubinCache cache,
                                                std::unique_ptr<GpuDriver> driver);

// Makes a compiler from NVRTC, the installed driver and the cache of the user. Fails if NVRTC or the driver is missing
// or does not support the architecture.
absl::StatusOr<std::unique_ptr<KernelCompiler>> LoadGpuCompiler(int architecture, std::span<const std::string> folders,
                                                                std::function<void*()> current_stream);

// Releases the compiler to the caller. For an error, returns null and logs it: ATen's kernels will run instead.
KernelCompiler* ReleaseOrWarn(absl::StatusOr<std::unique_ptr<KernelCompiler>> compiler);

}  // namespace onnxtrain::aten
