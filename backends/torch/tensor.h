// Between our types and ATen's.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/graph/type.h"

namespace onnxtrain::aten {

// Unsigned types that ATen computes nothing in are carried as the signed type of their width: good for moving and
// comparing for equality, for nothing else (see IsCarried).
at::ScalarType ScalarTypeOf(DType dtype);
bool IsCarried(DType dtype);  // u16, u32, u64

// A dense row-major tensor over memory that somebody else owns.
at::Tensor ViewOf(void* data, const Type& type, at::Device device);
// A copy on the device.
at::Tensor Upload(const HostTensor& tensor, at::Device device);
// The tensor's elements; `type` says what they are.
HostTensor Download(const at::Tensor& tensor, const Type& type);

// Zeroed bytes on the device.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes, at::Device device);

// Waits for what has been queued on the device.
void SynchronizeDevice(at::Device device);

}  // namespace onnxtrain::aten
