#include "frontend/onnx/read/value_file.h"

#include <onnx/onnx-data_pb.h>
#include <onnx/onnx_pb.h>

#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/guard.h"
#include "frontend/onnx/read/tensor_proto.h"

namespace onnxtrain {
namespace {

template <typename Proto>
absl::StatusOr<std::shared_ptr<const Proto>> ParseMessage(std::span<const std::byte> bytes,
                                                          absl::Status (*guard)(std::span<const std::byte>),
                                                          std::string_view what) {
  RETURN_IF_ERROR(guard(bytes));
  auto proto = std::make_shared<Proto>();
  if (!proto->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Invalid("is not ", what);
  return proto;
}

absl::StatusOr<HostTensor> ReadElement(const onnx::TensorProto& proto, const std::shared_ptr<const void>& owner) {
  auto tensor = ReadTensor(proto, owner, nullptr);
  if (!tensor.ok()) return Annotate(tensor.status(), "the tensor ");
  if (!tensor->opaque.empty()) return absl::UnimplementedError(StrCat("tensor of ", tensor->opaque));
  return tensor->tensor;
}

absl::StatusOr<StoredValue> LoadTensor(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto proto, ParseMessage<onnx::TensorProto>(bytes, GuardTensorBytes, "a tensor"));
  ASSIGN_OR_RETURN(HostTensor tensor, ReadElement(*proto, proto));
  return StoredValue{.name = proto->name(), .elements = {std::move(tensor)}};
}

absl::StatusOr<StoredValue> ReadSequence(const onnx::SequenceProto& proto, const std::shared_ptr<const void>& owner) {
  using Sequence = onnx::SequenceProto;
  if (proto.elem_type() != Sequence::TENSOR && proto.elem_type() != Sequence::UNDEFINED) {
    return absl::UnimplementedError("a sequence of something other than tensors");
  }
  StoredValue value;
  for (const onnx::TensorProto& tensor : proto.tensor_values()) {
    ASSIGN_OR_RETURN(value.elements.emplace_back(), ReadElement(tensor, owner));
  }
  return value;
}

absl::StatusOr<StoredValue> ReadOptional(const onnx::OptionalProto& proto, const std::shared_ptr<const void>& owner) {
  if (proto.has_sequence_value()) return ReadSequence(proto.sequence_value(), owner);
  if (proto.elem_type() == onnx::OptionalProto::UNDEFINED && !proto.has_tensor_value())
    return StoredValue{.present = false};
  if (!proto.has_tensor_value()) return absl::UnimplementedError("an optional of something other than tensors");
  ASSIGN_OR_RETURN(HostTensor tensor, ReadElement(proto.tensor_value(), owner));
  return StoredValue{.elements = {std::move(tensor)}};
}

absl::StatusOr<StoredValue> LoadValue(std::span<const std::byte> bytes, ValueForm form) {
  if (form.optional) {
    ASSIGN_OR_RETURN(const auto proto, ParseMessage<onnx::OptionalProto>(bytes, GuardOptionalBytes, "an optional"));
    return ReadOptional(*proto, proto);
  }
  if (form.sequence) {
    ASSIGN_OR_RETURN(const auto proto, ParseMessage<onnx::SequenceProto>(bytes, GuardSequenceBytes, "a sequence"));
    return ReadSequence(*proto, proto);
  }
  return LoadTensor(bytes);
}

}  // namespace

absl::StatusOr<StoredValue> LoadValueFile(const std::string& path, ValueForm form) {
  ASSIGN_OR_RETURN(const auto file, MapProtoFile(path));
  absl::StatusOr<StoredValue> value = LoadValue(file->bytes(), form);
  return value.ok() ? value : Annotate(value.status(), StrCat(path, ": "));
}

}  // namespace onnxtrain
