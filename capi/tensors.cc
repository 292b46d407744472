#include "capi/tensors.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "frontend/base/status.h"

namespace onnxtrain::capi {
namespace {

struct TypeRow {
  OnnxtrainType type;
  DType dtype;
};

constexpr TypeRow kTypes[] = {
    {ONNXTRAIN_FLOAT, DType::kFloat32},     {ONNXTRAIN_UINT8, DType::kUInt8},   {ONNXTRAIN_INT8, DType::kInt8},
    {ONNXTRAIN_UINT16, DType::kUInt16},     {ONNXTRAIN_INT16, DType::kInt16},   {ONNXTRAIN_INT32, DType::kInt32},
    {ONNXTRAIN_INT64, DType::kInt64},       {ONNXTRAIN_BOOL, DType::kBool},     {ONNXTRAIN_FLOAT16, DType::kFloat16},
    {ONNXTRAIN_DOUBLE, DType::kFloat64},    {ONNXTRAIN_UINT32, DType::kUInt32}, {ONNXTRAIN_UINT64, DType::kUInt64},
    {ONNXTRAIN_BFLOAT16, DType::kBFloat16},
};

constexpr int kMostAxes = 64;

std::optional<DType> ToDType(int32_t type) {
  const auto* row = std::ranges::find(kTypes, type, [](const TypeRow& r) { return static_cast<int32_t>(r.type); });
  return row == std::end(kTypes) ? std::nullopt : std::optional(row->dtype);
}

// Returns the ONNX number of a type, or 0 if the C interface has none.
int32_t FromDType(DType dtype) {
  const auto* row = std::ranges::find(kTypes, dtype, &TypeRow::dtype);
  return row == std::end(kTypes) ? 0 : static_cast<int32_t>(row->type);
}

absl::StatusOr<Type> ReadType(const OnnxtrainTensor& tensor, uint64_t index) {
  if (tensor.name == nullptr) return Invalid("tensor ", index, ": its name is null");
  const std::optional<DType> dtype = ToDType(tensor.type);
  if (!dtype) return Invalid("tensor '", tensor.name, "': there is no element type ", tensor.type);
  if (tensor.rank < 0 || tensor.rank > kMostAxes)
    return Invalid("tensor '", tensor.name, "': rank ", tensor.rank, " is not from 0 to ", kMostAxes);
  if (tensor.rank > 0 && tensor.shape == nullptr) return Invalid("tensor '", tensor.name, "': its shape is null");
  Type type{*dtype, Shape(tensor.shape, tensor.shape + tensor.rank)};
  RETURN_IF_ERROR(Annotate(CheckShape(type.shape), StrCat("tensor '", tensor.name, "': ")));
  return type;
}

// Reads the type of one sample tensor. An extent of −n varies up to n.
absl::StatusOr<Type> ReadSampleType(const OnnxtrainTensor& tensor, uint64_t index, CallerSample* sample) {
  OnnxtrainTensor greatest = tensor;
  Shape shape;
  std::vector<size_t> varying;
  const bool readable = tensor.shape != nullptr && tensor.rank > 0 && tensor.rank <= kMostAxes;
  for (int32_t axis = 0; readable && axis < tensor.rank; ++axis) {
    const int64_t extent = tensor.shape[axis];
    if (extent < 0) varying.push_back(axis);
    shape.push_back(extent < 0 && extent > std::numeric_limits<int64_t>::min() ? -extent : extent);
  }
  if (readable) greatest.shape = shape.data();
  ASSIGN_OR_RETURN(Type type, ReadType(greatest, index));
  if (!varying.empty()) sample->varying[tensor.name] = std::move(varying);
  return type;
}

absl::StatusOr<NamedTensorView> View(const OnnxtrainTensor& tensor, uint64_t index) {
  ASSIGN_OR_RETURN(Type type, ReadType(tensor, index));
  if (tensor.bytes != type.bytes())
    return Invalid("tensor '", tensor.name, "' ", ToString(type), ": has ", tensor.bytes, " bytes, expected ",
                   type.bytes());
  if (tensor.data == nullptr && tensor.bytes > 0) return Invalid("tensor '", tensor.name, "': its data is null");
  return NamedTensorView{tensor.name, HostTensor(std::move(type), nullptr, tensor.data)};
}

}  // namespace

absl::StatusOr<std::vector<NamedTensorView>> ViewTensors(const OnnxtrainTensor* tensors, uint64_t count) {
  if (tensors == nullptr && count > 0) return Invalid("the array of tensors is null");
  std::vector<NamedTensorView> views;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(NamedTensorView view, View(tensors[i], i));
    views.push_back(std::move(view));
  }
  return views;
}

absl::StatusOr<CallerSample> ReadSample(const OnnxtrainTensor* tensors, uint64_t count,
                                        const std::vector<std::string>& inputs) {
  if (tensors == nullptr && count > 0) return Invalid("the array of samples is null");
  CallerSample sample;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Type type, ReadSampleType(tensors[i], i, &sample));
    const std::string name = tensors[i].name;
    const bool is_input = std::ranges::find(inputs, name) != inputs.end();
    if (!(is_input ? sample.inputs : sample.labels).emplace(name, type).second)
      return Invalid("sample '", name, "' is there twice");
  }
  return sample;
}

OnnxtrainTensor Describe(const std::string& name, const Type& type) {
  return {.name = name.c_str(),
          .type = FromDType(type.dtype),
          .rank = type.rank(),
          .shape = type.shape.data(),
          .data = nullptr,
          .bytes = type.bytes()};
}

OnnxtrainTensor Describe(const std::string& name, const HostTensor& tensor) {
  OnnxtrainTensor described = Describe(name, tensor.type());
  described.data = tensor.bytes().data();
  return described;
}

absl::StatusOr<OnnxtrainTensor> TensorList::At(uint64_t index) const {
  if (index >= tensors_.size()) return Invalid("there is no tensor ", index, ", only ", tensors_.size());
  const auto& [name, tensor] = *std::next(tensors_.begin(), static_cast<std::ptrdiff_t>(index));
  return Describe(name, tensor);
}

absl::StatusOr<OnnxtrainTensor> TensorList::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return absl::NotFoundError(StrCat("there is no tensor '", name, "'"));
  return Describe(found->first, found->second);
}

}  // namespace onnxtrain::capi
