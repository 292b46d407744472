// Reads TensorProto into HostTensor, and files that hold one value, such as the inputs and outputs of ONNX's
// conformance cases. Checks every size before it allocates.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/file.h"

namespace onnx {
class TensorProto;
}  // namespace onnx

namespace onnxtrain {

struct TensorOrKind {
  HostTensor tensor;
  std::string opaque;  // the name of an unsupported element type ("string", "complex64")
};

struct OwnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Reads a tensor, which shares raw_data, and data fields of its own element type, with `proto`, kept alive by `owner`.
// Without `files`, external data is an error. `extracted` replaces the raw_data of the message; the tensor is a view of
// it, at any alignment. Errors do not name the tensor.
absl::StatusOr<TensorOrKind> ReadTensor(const onnx::TensorProto& proto, const std::shared_ptr<const void>& owner,
                                        ExternalFiles* files, const OwnedBytes& extracted = {});

// Returns the bytes of `tensor` in the format of raw_data and external data, where 4-bit and 2-bit types are packed.
HostTensor PackForStorage(const HostTensor& tensor);

// The bytes of a tensor with external data, and their range. The element type may be unsupported, but must not be
// string.
struct ExternalBytes {
  ExternalRange range;
  HostTensor bytes;  // u8[n]
};
absl::StatusOr<ExternalBytes> ReadExternalBytes(const onnx::TensorProto& proto, ExternalFiles* files);

// Returns the name of a TensorProto.DataType, "type 99" for an unknown one.
std::string OnnxTypeName(int64_t onnx_type);

struct StoredValue {
  std::string name = {};             // of a tensor; "" if the file has none
  bool present = true;               // false: an empty optional
  std::vector<HostTensor> elements;  // of a sequence; one element for a tensor or an optional tensor
};

// Reads a TensorProto, SequenceProto or OptionalProto; the file does not say which. Errors name the file. Unsupported
// element types (strings, complex numbers) and sequences of anything but tensors are kUnimplemented.
absl::StatusOr<StoredValue> LoadValueFile(const std::string& path, ValueForm form);

}  // namespace onnxtrain
