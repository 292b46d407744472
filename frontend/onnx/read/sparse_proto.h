// SparseTensorProto → dense HostTensor.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/file.h"

namespace onnx {
class SparseTensorProto;
}

namespace onnxtrain {

// Makes the tensor dense. Fails above `budget` bytes, as a few numbers can declare a large tensor, and on indices out
// of range or not in increasing order. Errors do not name the tensor.
absl::StatusOr<HostTensor> ReadSparseTensor(const onnx::SparseTensorProto& proto, ExternalFiles* files, int64_t budget);

}  // namespace onnxtrain
