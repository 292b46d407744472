// TensorProto → HostTensor, with every size checked before anything is allocated.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/file.h"

namespace onnx {
class TensorProto;
}

namespace onnxtrain {

struct TensorOrKind {
  HostTensor tensor;
  std::string opaque;  // the element type's name where it is one that we have no type for ("string", "complex64")
};

// Bytes that somebody keeps.
struct OwnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Raw and same-typed data is shared with `owner`, which keeps `proto` alive. `files` may be null: external data is then
// refused. `lifted`: raw_data that stands elsewhere, in place of the message's own; the tensor is a view of it, at whatever
// address. Errors carry no tag.
absl::StatusOr<TensorOrKind> ReadTensor(const onnx::TensorProto& proto, const std::shared_ptr<const void>& owner,
                                        ExternalFiles* files, const OwnedBytes& lifted = {});

// The bytes of `tensor` as raw data or external data hold them: 4-bit and 2-bit types are packed.
HostTensor AsInFile(const HostTensor& tensor);

// The bytes of a tensor with external data, of any element type that has bytes, and where they stand.
struct ExternalBytes {
  ExternalRange range;
  HostTensor bytes;  // u8[n]
};
absl::StatusOr<ExternalBytes> ReadExternalBytes(const onnx::TensorProto& proto, ExternalFiles* files);

// The name of ONNX's TensorProto.DataType, "type 99" for an unknown one.
std::string OnnxTypeName(int64_t onnx_type);

}  // namespace onnxtrain
