#include "frontend/onnx/read/tensor_proto.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include <onnx/onnx-data_pb.h>
#include <onnx/onnx_pb.h>
#include "absl/strings/numbers.h"
#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

enum class Field : uint8_t { kFloat, kInt32, kInt64, kUInt64, kDouble, kString };
constexpr std::string_view kFieldNames[] = {"float_data",  "int32_data",  "int64_data",
                                            "uint64_data", "double_data", "string_data"};

struct Element {
  int64_t number;
  std::string_view name;
  int bits;                  // of one element in raw_data; 0: never raw
  Field field;               // which typed field may hold it
  int per_entry_inverse;     // entries of that field per element (complex: 2), negative: elements per entry
  int64_t min = 0, max = 0;  // of an integer entry; 0, 0: any
};

constexpr Element kElements[] = {
    {1, "float", 32, Field::kFloat, 1},
    {2, "uint8", 8, Field::kInt32, 1, 0, 255},
    {3, "int8", 8, Field::kInt32, 1, -128, 127},
    {4, "uint16", 16, Field::kInt32, 1, 0, 65535},
    {5, "int16", 16, Field::kInt32, 1, -32768, 32767},
    {6, "int32", 32, Field::kInt32, 1},
    {7, "int64", 64, Field::kInt64, 1},
    {8, "string", 0, Field::kString, 1},
    {9, "bool", 8, Field::kInt32, 1, 0, 1},
    {10, "float16", 16, Field::kInt32, 1, 0, 65535},
    {11, "double", 64, Field::kDouble, 1},
    {12, "uint32", 32, Field::kUInt64, 1, 0, 4294967295},
    {13, "uint64", 64, Field::kUInt64, 1},
    {14, "complex64", 64, Field::kFloat, 2},
    {15, "complex128", 128, Field::kDouble, 2},
    {16, "bfloat16", 16, Field::kInt32, 1, 0, 65535},
    {17, "float8e4m3fn", 8, Field::kInt32, 1, 0, 255},
    {18, "float8e4m3fnuz", 8, Field::kInt32, 1, 0, 255},
    {19, "float8e5m2", 8, Field::kInt32, 1, 0, 255},
    {20, "float8e5m2fnuz", 8, Field::kInt32, 1, 0, 255},
    {21, "uint4", 4, Field::kInt32, -2, 0, 255},
    {22, "int4", 4, Field::kInt32, -2, -128, 255},
    {23, "float4e2m1", 4, Field::kInt32, -2, 0, 255},
    {24, "float8e8m0", 8, Field::kInt32, 1, 0, 255},
    {25, "uint2", 2, Field::kInt32, -4, 0, 255},
    {26, "int2", 2, Field::kInt32, -4, -128, 255},
};

const Element* FindElement(int64_t number) {
  for (const Element& e : kElements) {
    if (e.number == number) return &e;
  }
  return nullptr;
}

int64_t CountEntries(const onnx::TensorProto& proto, Field field) {
  switch (field) {
    case Field::kFloat:
      return proto.float_data_size();
    case Field::kInt32:
      return proto.int32_data_size();
    case Field::kInt64:
      return proto.int64_data_size();
    case Field::kUInt64:
      return proto.uint64_data_size();
    case Field::kDouble:
      return proto.double_data_size();
    case Field::kString:
      return proto.string_data_size();
  }
  return 0;
}

// Checks that at most one field holds data, and that it is the field of the element type.
absl::Status CheckFields(const onnx::TensorProto& proto, const Element& element, bool raw, bool external) {
  std::string first = raw ? "raw_data" : "";
  for (Field field : {Field::kFloat, Field::kInt32, Field::kInt64, Field::kUInt64, Field::kDouble, Field::kString}) {
    if (CountEntries(proto, field) == 0) continue;
    const std::string_view name = kFieldNames[static_cast<int>(field)];
    if (!first.empty()) return Invalid("has data in both ", first, " and ", name);
    if (field != element.field) return Invalid("of type ", element.name, " has its data in ", name);
    first = name;
  }
  if (external && !first.empty()) return Invalid("has external data and ", first);
  if (first == "raw_data" && element.bits == 0) return Invalid("of type ", element.name, " has raw_data");
  return absl::OkStatus();
}

absl::Status CheckSizes(const onnx::TensorProto& proto, const Element& element, size_t raw, const Shape& shape) {
  const int64_t n = NumElements(shape);
  if (raw > 0) {
    const int64_t want = (n * element.bits + 7) / 8, got = static_cast<int64_t>(raw);
    if (want == got) return absl::OkStatus();
    return Invalid("has ", got, " bytes of raw_data, ", element.name, ToString(shape), " needs ", want);
  }
  const int per = element.per_entry_inverse;
  const int64_t want = per > 0 ? n * per : (n - per - 1) / -per, got = CountEntries(proto, element.field);
  if (want == got) return absl::OkStatus();
  if (got == 0) return Invalid("has no data, ", element.name, ToString(shape), " needs ", want, " values");
  return Invalid("has ", got, " values in ", kFieldNames[static_cast<int>(element.field)], ", ", element.name,
                 ToString(shape), " needs ", want);
}

template <typename Entries>
absl::Status CheckRange(const Entries& entries, const Element& element) {
  if (element.min == 0 && element.max == 0) return absl::OkStatus();
  for (const auto entry : entries) {
    if (static_cast<int64_t>(entry) < element.min || static_cast<int64_t>(entry) > element.max) {
      return Invalid("of type ", element.name, " has the value ", entry, ", which is out of range");
    }
  }
  return absl::OkStatus();
}

// Narrows entries to little-endian integers of the element's size.
template <typename Entries>
HostTensor NarrowEntries(const Entries& entries, const Type& type) {
  HostTensor tensor(type);
  const size_t size = DTypeSize(type.dtype);
  std::byte* to = tensor.mutable_bytes().data();
  for (const auto entry : entries) {
    std::memcpy(to, &entry, size);
    to += size;
  }
  return tensor;
}

// Replaces nonzero bytes by 1, because reading a bool other than 0 or 1 is undefined behavior.
HostTensor NormalizeBools(const HostTensor& raw) {
  const auto bytes = raw.data<uint8_t>();
  if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b <= 1; })) return raw;
  HostTensor tensor(raw.type());
  std::transform(bytes.begin(), bytes.end(), tensor.mutable_data<uint8_t>().begin(), [](uint8_t b) { return b != 0; });
  return tensor;
}

// Returns the type of the bytes in a file, where elements below 8 bits are packed, the first one in the lowest bits.
Type StorageType(const Type& type) {
  const int bits = StorageBits(type.dtype);
  return bits >= 8 ? type : Type{DType::kUInt8, {(type.elements() * bits + 7) / 8}};
}

HostTensor Unpack(const HostTensor& packed, const Type& type) {
  HostTensor tensor(type);
  const int bits = StorageBits(type.dtype), per_byte = 8 / bits;
  const auto from = packed.data<uint8_t>();
  for (int64_t i = 0, n = tensor.size(); i < n; ++i) {
    const int64_t code = from[i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1);
    if (IsSmallFloat(type.dtype)) {
      tensor.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(code);
    } else {
      tensor.SetInt(i, code);
    }
  }
  return tensor;
}

HostTensor DecodeStored(const HostTensor& raw, const Type& type) {
  if (type.dtype == DType::kBool) return NormalizeBools(raw);
  return StorageBits(type.dtype) < 8 ? Unpack(raw, type) : raw;
}

HostTensor ViewOrEmpty(const Type& type, const std::shared_ptr<const void>& owner, const void* data) {
  return type.elements() == 0 ? HostTensor(type) : HostTensor(type, owner, data);
}

HostTensor ReadTypedField(const onnx::TensorProto& proto, Field field, const Type& type,
                          const std::shared_ptr<const void>& owner) {
  switch (field) {
    case Field::kFloat:
      return ViewOrEmpty(type, owner, proto.float_data().data());
    case Field::kDouble:
      return ViewOrEmpty(type, owner, proto.double_data().data());
    case Field::kInt64:
      return ViewOrEmpty(type, owner, proto.int64_data().data());
    case Field::kUInt64:
      return NarrowEntries(proto.uint64_data(), type);
    case Field::kInt32:
      return NarrowEntries(proto.int32_data(), type);
    case Field::kString:
      break;
  }
  return HostTensor(type);
}

absl::StatusOr<int64_t> ParseNumber(const std::string& key, const std::string& text) {
  int64_t value = -1;
  const bool digits =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !absl::SimpleAtoi(text, &value))
    return Invalid("external data ", key, " '", text.substr(0, 40), "' is not a number");
  return value;
}

absl::StatusOr<ExternalRange> ReadExternalRange(const onnx::TensorProto& proto) {
  ExternalRange range;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") {
      range.location = entry.value();
    } else if (entry.key() == "offset") {
      ASSIGN_OR_RETURN(range.offset, ParseNumber("offset", entry.value()));
    } else if (entry.key() == "length") {
      ASSIGN_OR_RETURN(range.length, ParseNumber("length", entry.value()));
    } else if (entry.key() != "checksum") {  // optional in ONNX; no tool writes it
      return Invalid("external data has the unknown key '", entry.key().substr(0, 40), "'");
    }
  }
  RETURN_IF_ERROR(ExternalFiles::SplitLocation(range.location).status());
  return range;
}

absl::StatusOr<Shape> ReadShape(const onnx::TensorProto& proto) {
  Shape shape(proto.dims().begin(), proto.dims().end());
  RETURN_IF_ERROR(CheckShape(shape));
  return shape;
}

}  // namespace

std::string OnnxTypeName(int64_t onnx_type) {
  const Element* element = FindElement(onnx_type);
  return element == nullptr ? StrCat("type ", onnx_type) : std::string(element->name);
}

absl::StatusOr<ExternalBytes> ReadExternalBytes(const onnx::TensorProto& proto, ExternalFiles* files) {
  const Element* element = FindElement(proto.data_type());
  if (element == nullptr || element->bits == 0)
    return Invalid("has external data of ", OnnxTypeName(proto.data_type()));
  ASSIGN_OR_RETURN(const Shape shape, ReadShape(proto));
  ExternalBytes result;
  ASSIGN_OR_RETURN(result.range, ReadExternalRange(proto));
  ASSIGN_OR_RETURN(result.bytes,
                   files->Read(result.range, {DType::kUInt8, {(NumElements(shape) * element->bits + 7) / 8}}));
  return result;
}

absl::StatusOr<TensorOrKind> ReadTensor(const onnx::TensorProto& proto, const std::shared_ptr<const void>& owner,
                                        ExternalFiles* files, const OwnedBytes& extracted) {
  const Element* element = FindElement(proto.data_type());
  if (element == nullptr) return Invalid("has the unknown element type ", proto.data_type());
  ASSIGN_OR_RETURN(const Shape shape, ReadShape(proto));
  if (proto.has_segment()) return Invalid("is stored in segments, which no tool reads");
  const bool external = proto.data_location() == onnx::TensorProto::EXTERNAL;
  const OwnedBytes raw_data =
      extracted.bytes.empty() ? OwnedBytes{std::as_bytes(std::span(proto.raw_data())), owner} : extracted;
  RETURN_IF_ERROR(CheckFields(proto, *element, !raw_data.bytes.empty(), external));
  const std::optional<DType> dtype = DTypeFromOnnx(proto.data_type());
  if (external) {
    ASSIGN_OR_RETURN(const ExternalRange range, ReadExternalRange(proto));
    if (!dtype) return TensorOrKind{.opaque = std::string(element->name)};
    if (files == nullptr) return Invalid("has external data, which is not allowed here");
    ASSIGN_OR_RETURN(const HostTensor raw, files->Read(range, StorageType({*dtype, shape})));
    return TensorOrKind{.tensor = DecodeStored(raw, {*dtype, shape})};
  }
  RETURN_IF_ERROR(CheckSizes(proto, *element, raw_data.bytes.size(), shape));
  RETURN_IF_ERROR(CheckRange(proto.int32_data(), *element));
  RETURN_IF_ERROR(CheckRange(proto.uint64_data(), *element));
  if (!dtype) return TensorOrKind{.opaque = std::string(element->name)};
  const Type type{*dtype, shape}, stored = StorageType(type);
  const HostTensor raw = raw_data.bytes.empty() ? ReadTypedField(proto, element->field, stored, owner)
                                                : ViewOrEmpty(stored, raw_data.owner, raw_data.bytes.data());
  return TensorOrKind{.tensor = DecodeStored(raw, type)};
}

HostTensor PackForStorage(const HostTensor& tensor) {
  const int bits = StorageBits(tensor.dtype()), per_byte = 8 / bits;
  if (bits >= 8) return tensor;
  HostTensor packed(StorageType(tensor.type()));
  const auto to = packed.mutable_data<uint8_t>();
  const auto from = tensor.data<uint8_t>();
  for (size_t i = 0; i < from.size(); ++i) {
    const int code = from[i] & ((1 << bits) - 1);
    to[i / per_byte] = static_cast<uint8_t>(to[i / per_byte] | code << (i % per_byte * bits));
  }
  return packed;
}

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
