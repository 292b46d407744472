#include "backends/backend.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include "backends/torch/cuda.h"
#include "backends/torch/guard.h"
#include "backends/torch/torch_backend.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {
namespace {

// Without the libraries of the device, libtorch's own message lists everything that it has.
absl::Status CheckDevice(at::Device device) {
  if (c10::impl::hasDeviceGuardImpl(device.type())) return absl::OkStatus();
  return absl::UnavailableError(StrCat("device ", device.str(), ": this libtorch (", TORCH_VERSION,
                                       ") has no kernels for it; tools/setup_cuda.sh installs one with CUDA"));
}

// One setting for the process. By default, libtorch rounds in convolutions.
void AllowTf32(bool allow) {
  at::globalContext().setAllowTF32CuBLAS(allow);
  at::globalContext().setAllowTF32CuDNN(allow);
}

absl::StatusOr<std::unique_ptr<Backend>> Create(const BackendOptions& options) {
  std::unique_ptr<Backend> backend;
  absl::Status known;
  RETURN_IF_ERROR(CatchTorchErrors(StrCat("device ", options.device, ": "), [&] {
    const at::Device device(options.device);
    known = CheckDevice(device);
    if (!known.ok()) return;
    // The thread count is ATen's, one for the process.
    if (options.threads > 0) at::set_num_threads(options.threads);
    AllowTf32(options.tf32);
    at::zeros({1}, at::TensorOptions().device(device));  // fails here where the device is not there
    backend = MakeTorchBackend(device, FindKernelCompiler(device), options.tf32);
  }));
  RETURN_IF_ERROR(known);
  return backend;
}

}  // namespace
}  // namespace onnxtrain::aten

extern "C" onnxtrain::Backend* onnxtrain_create_backend(const onnxtrain::BackendOptions& options,
                                                        absl::Status* status) {
  auto backend = onnxtrain::aten::Create(options);
  *status = backend.status();
  return backend.ok() ? std::move(backend)->release() : nullptr;
}
