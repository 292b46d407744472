// Conversions to ATen's types and tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/graph/type.h"

namespace onnxtrain::aten {

// Maps unsigned types that ATen cannot compute with (see IsStoredAsSigned) to the signed type of their width, which is
// valid for moves and equality comparisons only.
at::ScalarType ToScalarType(DType dtype);
bool IsStoredAsSigned(DType dtype);  // u16, u32, u64

// Returns a dense row-major view of memory that the caller owns.
at::Tensor MakeView(void* data, const Type& type, at::Device device);
// Copies to the device.
at::Tensor Upload(const HostTensor& tensor, at::Device device);
// Copies the elements, of type `type`, to the host.
HostTensor Download(const at::Tensor& tensor, const Type& type);

// Allocates zeroed bytes on the device.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes, at::Device device);

}  // namespace onnxtrain::aten
