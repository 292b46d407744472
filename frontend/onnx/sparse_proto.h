// SparseTensorProto → dense HostTensor.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/file.h"

namespace onnx {
class SparseTensorProto;
}

namespace onnxtrain {

// The dense form, of at most `budget` bytes: a few numbers may declare a large tensor. Indices must be in range and in
// increasing order, as ONNX demands. Errors carry no tag.
absl::StatusOr<HostTensor> ReadSparseTensor(const onnx::SparseTensorProto& proto, ExternalFiles* files, int64_t budget);

}  // namespace onnxtrain
