#include "backends/torch/fuse/gpu_driver.h"

#include <dlfcn.h>

#include "backends/torch/find_symbol.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

// Functions of libcuda.so.1, whose interface has not changed since CUDA 4. 0 is success.
struct Api {
  int (*load)(void** module, const void* image);
  int (*find)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra);
  int (*error)(int code, const char** text);
  int (*get_context)(void** context);
  int (*set_context)(void* context);
};

class CudaDriver : public GpuDriver {
 public:
  CudaDriver(const Api& api, std::function<void*()> current_stream)
      : api_(api), current_stream_(std::move(current_stream)) {}

  absl::StatusOr<void*> LoadModule(const std::string& module) override {
    void* loaded = nullptr;
    RETURN_IF_ERROR(Check(api_.get_context(&context_), "asking for the context"));
    RETURN_IF_ERROR(Check(api_.load(&loaded, module.data()), "loading a generated kernel"));
    return loaded;
  }

  absl::StatusOr<void*> FindFunction(void* module, const std::string& name) override {
    void* function = nullptr;
    RETURN_IF_ERROR(Check(api_.find(&function, module, name.c_str()), name));
    return function;
  }

  absl::Status Launch(void* function, unsigned blocks, unsigned threads, std::span<void* const> argument) override {
    RETURN_IF_ERROR(EnterContext());
    void* arguments[] = {const_cast<void**>(argument.data())};
    return Check(api_.launch(function, blocks, 1, 1, threads, 1, 1, 0, current_stream_(), arguments, nullptr),
                 "starting a generated kernel");
  }

 private:
  // A thread that has not called the CUDA runtime yet has no context.
  absl::Status EnterContext() {
    void* current = nullptr;
    RETURN_IF_ERROR(Check(api_.get_context(&current), "asking for the context"));
    return current == context_ ? absl::OkStatus() : Check(api_.set_context(context_), "entering the context");
  }

  absl::Status Check(int code, std::string_view what) const {
    if (code == 0) return absl::OkStatus();
    const char* text = nullptr;
    api_.error(code, &text);
    constexpr int kOutOfMemory = 2;
    const std::string message = StrCat(what, ": ", text == nullptr ? "unknown error" : text);
    return code == kOutOfMemory ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
  }

  const Api api_;
  const std::function<void*()> current_stream_;
  void* context_ = nullptr;  // of the modules
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDriver>> LoadGpuDriver(std::function<void*()> current_stream) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) return absl::UnavailableError("there is no NVIDIA driver (libcuda.so.1)");
  Api api{};
  const bool complete =
      FindSymbol(library, "cuModuleLoadData", &api.load) && FindSymbol(library, "cuModuleGetFunction", &api.find) &&
      FindSymbol(library, "cuLaunchKernel", &api.launch) && FindSymbol(library, "cuGetErrorString", &api.error) &&
      FindSymbol(library, "cuCtxGetCurrent", &api.get_context) &&
      FindSymbol(library, "cuCtxSetCurrent", &api.set_context);
  if (!complete) return absl::UnavailableError("libcuda.so.1 lacks a function");
  return std::make_unique<CudaDriver>(api, std::move(current_stream));
}

}  // namespace onnxtrain::aten
