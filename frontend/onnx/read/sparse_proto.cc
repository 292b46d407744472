#include "frontend/onnx/read/sparse_proto.h"

#include <onnx/onnx_pb.h>

#include <cstring>

#include "frontend/base/status.h"
#include "frontend/onnx/read/tensor_proto.h"

namespace onnxtrain {
namespace {

absl::StatusOr<HostTensor> ReadPart(const onnx::TensorProto& proto, std::string_view what, ExternalFiles* files) {
  auto part = ReadTensor(proto, nullptr, files);
  if (!part.ok()) return Annotate(part.status(), StrCat("(", what, ") "));
  if (!part->opaque.empty()) return absl::UnimplementedError(StrCat("holds ", what, " of type ", part->opaque));
  return part->tensor.Clone();  // the tensor may outlive the message
}

// Converts indices [n] (already offsets) or [n, rank] to row-major offsets of the values.
absl::StatusOr<std::vector<int64_t>> ComputeOffsets(const HostTensor& indices, const Shape& shape, int64_t count) {
  const auto rank = static_cast<int64_t>(shape.size());
  const bool linear = indices.shape() == Shape{count};
  if (indices.dtype() != DType::kInt64 || (!linear && indices.shape() != Shape{count, rank})) {
    return Invalid("has indices ", ToString(indices.type()), " for ", count, " values of ", ToString(shape));
  }
  const Shape strides = Strides(shape);
  std::vector<int64_t> offsets(count);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t axis = 0; axis < (linear ? 1 : rank); ++axis) {
      const int64_t index = indices.IntAt(linear ? i : i * rank + axis),
                    extent = linear ? NumElements(shape) : shape[axis];
      if (index < 0 || index >= extent)
        return Invalid("has the index ", index, ", which is outside its shape ", ToString(shape));
      offsets[i] += linear ? index : index * strides[axis];
    }
    if (i > 0 && offsets[i] <= offsets[i - 1]) return Invalid("has indices that do not increase");
  }
  return offsets;
}

}  // namespace

absl::StatusOr<HostTensor> ReadSparseTensor(const onnx::SparseTensorProto& proto, ExternalFiles* files,
                                            int64_t budget) {
  const Shape shape(proto.dims().begin(), proto.dims().end());
  RETURN_IF_ERROR(CheckShape(shape));
  ASSIGN_OR_RETURN(const HostTensor values, ReadPart(proto.values(), "values", files));
  ASSIGN_OR_RETURN(const HostTensor indices, ReadPart(proto.indices(), "indices", files));
  if (values.shape().size() != 1) return Invalid("has values ", ToString(values.type()), ", not a list");
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, ComputeOffsets(indices, shape, values.size()));
  const Type type{values.dtype(), shape};
  if (static_cast<int64_t>(type.bytes()) > budget)
    return Invalid("of type ", ToString(type), " is too large when dense");
  HostTensor dense(type);
  const size_t size = DTypeSize(type.dtype);
  for (size_t i = 0; i < offsets.size(); ++i) {
    std::memcpy(dense.mutable_bytes().data() + offsets[i] * size, values.bytes().data() + i * size, size);
  }
  return dense;
}

}  // namespace onnxtrain
