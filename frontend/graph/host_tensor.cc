#include "frontend/graph/host_tensor.h"
#include "frontend/graph/small_types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "frontend/base/log.h"
#include "frontend/base/small_float.h"
#include "frontend/base/strings.h"
#include "frontend/graph/type.h"

namespace onnxtrain {
namespace {

// Calls f with a null pointer of the C++ type that stores `dtype`: uint16_t for float16 and bfloat16, uint8_t for small
// floats.
template <typename F>
decltype(auto) Dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(static_cast<float*>(nullptr));
    case DType::kFloat64:
      return f(static_cast<double*>(nullptr));
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kUInt16:
      return f(static_cast<uint16_t*>(nullptr));
    case DType::kInt4:
    case DType::kInt2:
    case DType::kInt8:
      return f(static_cast<int8_t*>(nullptr));
    case DType::kInt16:
      return f(static_cast<int16_t*>(nullptr));
    case DType::kInt32:
      return f(static_cast<int32_t*>(nullptr));
    case DType::kInt64:
      return f(static_cast<int64_t*>(nullptr));
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0:
    case DType::kFloat4E2M1:
    case DType::kUInt4:
    case DType::kUInt2:
    case DType::kUInt8:
    case DType::kBool:
      return f(static_cast<uint8_t*>(nullptr));
    case DType::kUInt32:
      return f(static_cast<uint32_t*>(nullptr));
    case DType::kUInt64:
      return f(static_cast<uint64_t*>(nullptr));
  }
  std::abort();
}

int64_t Saturate(double v) {
  if (std::isnan(v)) return 0;
  if (v >= 9223372036854775807.0) return std::numeric_limits<int64_t>::max();
  if (v <= -9223372036854775808.0) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(v);
}

class TensorTooLarge : public std::bad_alloc {
 public:
  explicit TensorTooLarge(const Type& type)
      : what_(std::make_shared<std::string>(StrCat(ToString(type), " needs ", type.bytes() >> 20, " MiB"))) {}
  const char* what() const noexcept override { return what_->c_str(); }

 private:
  std::shared_ptr<const std::string> what_;  // copies of an exception must not throw
};

// Tensors in mapped files may be unaligned.
template <typename T>
T Load(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Returns true if elements are stored as integer codes of floats.
bool IsStoredAsCode(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || IsSmallFloat(dtype);
}

}  // namespace

HostTensor::HostTensor(Type type) : type_(std::move(type)) {
  const size_t size = std::max<size_t>(64, (type_.bytes() + 63) / 64 * 64);
  // For large tensors calloc returns zero pages that the kernel maps lazily.
  void* block = std::calloc(1, size + 64);
  if (block == nullptr) throw TensorTooLarge(type_);
  const auto aligned = (reinterpret_cast<uintptr_t>(block) + 63) / 64 * 64;
  owner_ = std::shared_ptr<const void>(block, [](const void* p) { std::free(const_cast<void*>(p)); });
  data_ = reinterpret_cast<const std::byte*>(aligned);
}

HostTensor::HostTensor(Type type, std::shared_ptr<const void> owner, const void* data)
    : type_(std::move(type)), owner_(std::move(owner)), data_(static_cast<const std::byte*>(data)) {}

HostTensor HostTensor::Scalar(DType dtype, double value) { return Filled({dtype, {}}, value); }

HostTensor HostTensor::Filled(Type type, double value) {
  HostTensor t(std::move(type));
  for (int64_t i = 0, n = t.size(); i < n; ++i) t.Set(i, value);
  return t;
}

HostTensor HostTensor::FromInts(const std::vector<int64_t>& values) {
  return FromInts({DType::kInt64, {static_cast<int64_t>(values.size())}}, values);
}

HostTensor HostTensor::FromDoubles(Type type, std::span<const double> values) {
  HostTensor t(std::move(type));
  CHECK_EQ(static_cast<size_t>(t.size()), values.size());
  t.Write(0, values);
  return t;
}

HostTensor HostTensor::FromInts(Type type, std::span<const int64_t> values) {
  HostTensor t(std::move(type));
  CHECK_EQ(static_cast<size_t>(t.size()), values.size());
  for (int64_t i = 0, n = t.size(); i < n; ++i) t.SetInt(i, values[i]);
  return t;
}

std::span<const std::byte> HostTensor::bytes() const { return {data_, data_ == nullptr ? 0 : type_.bytes()}; }

std::span<std::byte> HostTensor::mutable_bytes() { return {const_cast<std::byte*>(data_), type_.bytes()}; }

double HostTensor::At(int64_t i) const {
  if (dtype() == DType::kFloat16) return HalfToFloat(Load<uint16_t>(data_, i));
  if (dtype() == DType::kBFloat16) return BFloat16ToFloat(Load<uint16_t>(data_, i));
  if (IsSmallFloat(dtype())) return SmallToFloat(ToSmallFloat(dtype()), Load<uint8_t>(data_, i));
  return Dispatch(dtype(), [&]<typename T>(T*) { return static_cast<double>(Load<T>(data_, i)); });
}

int64_t HostTensor::IntAt(int64_t i) const {
  if (IsFloat(dtype()) || IsSmallFloat(dtype())) return Saturate(At(i));
  return Dispatch(dtype(), [&]<typename T>(T*) { return static_cast<int64_t>(Load<T>(data_, i)); });
}

void HostTensor::Set(int64_t i, double value) {
  if (IsSmallFloat(dtype())) {
    mutable_data<uint8_t>()[i] = GetEncoding(ToSmallFloat(dtype())).Encode(value);
    return;
  }
  switch (dtype()) {
    case DType::kFloat32:
      mutable_data<float>()[i] = static_cast<float>(value);
      return;
    case DType::kFloat64:
      mutable_data<double>()[i] = value;
      return;
    case DType::kFloat16:
      mutable_data<uint16_t>()[i] = FloatToHalf(static_cast<float>(value));
      return;
    case DType::kBFloat16:
      mutable_data<uint16_t>()[i] = FloatToBFloat16(static_cast<float>(value));
      return;
    case DType::kBool:
      mutable_data<uint8_t>()[i] = value != 0;
      return;
    default:
      SetInt(i, Saturate(value));
  }
}

void HostTensor::SetInt(int64_t i, int64_t value) {
  if (IsFloat(dtype()) || IsSmallFloat(dtype())) return Set(i, static_cast<double>(value));
  if (dtype() == DType::kBool) value = value != 0;
  if (IsStorage(dtype())) value = WrapSmallInt(dtype(), value);
  Dispatch(dtype(), [&]<typename T>(T*) { mutable_data<T>()[i] = static_cast<T>(value); });
}

void HostTensor::Read(int64_t begin, std::span<double> out) const {
  if (dtype() == DType::kFloat16) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = HalfToFloat(Load<uint16_t>(data_, begin + static_cast<int64_t>(i)));
    return;
  }
  if (IsStoredAsCode(dtype())) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = At(begin + static_cast<int64_t>(i));
    return;
  }
  Dispatch(dtype(), [&]<typename T>(T*) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<double>(Load<T>(data_, begin + static_cast<int64_t>(i)));
  });
}

void HostTensor::Write(int64_t begin, std::span<const double> values) {
  const auto copy = [&]<typename T>(std::span<T> to) {
    for (size_t i = 0; i < values.size(); ++i) to[begin + i] = static_cast<T>(values[i]);
  };
  if (dtype() == DType::kFloat32) return copy(mutable_data<float>());
  if (dtype() == DType::kFloat64) return copy(mutable_data<double>());
  for (size_t i = 0; i < values.size(); ++i) Set(begin + static_cast<int64_t>(i), values[i]);
}

std::vector<double> HostTensor::ToDoubles() const {
  std::vector<double> out(size());
  Read(0, out);
  return out;
}

std::vector<int64_t> HostTensor::ToInts() const {
  std::vector<int64_t> out(size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = IntAt(i);
  return out;
}

HostTensor HostTensor::Clone() const {
  HostTensor t(type_);
  if (size() > 0) std::memcpy(t.mutable_bytes().data(), data_, type_.bytes());
  return t;
}

HostTensor HostTensor::Reshaped(Shape shape) const {
  HostTensor t = *this;
  t.type_.shape = std::move(shape);
  CHECK_EQ(t.size(), size());
  return t;
}

HostTensor HostTensor::CastTo(DType to) const {
  if (to == dtype()) return *this;
  HostTensor t({to, shape()});
  if (!IsFloat(dtype()) && !IsSmallFloat(dtype())) {  // wide integers do not fit in doubles
    for (int64_t i = 0, n = size(); i < n; ++i) t.SetInt(i, IntAt(i));
    return t;
  }
  std::array<double, 1024> part;
  for (int64_t i = 0, n = size(); i < n; i += static_cast<int64_t>(part.size())) {
    const std::span<double> values(part.data(), std::min<size_t>(part.size(), n - i));
    Read(i, values);
    t.Write(i, values);
  }
  return t;
}

bool HostTensor::SameBytes(const HostTensor& other) const {
  return type_ == other.type_ &&
         (data_ == other.data_ || size() == 0 || std::memcmp(data_, other.data_, type_.bytes()) == 0);
}

}  // namespace onnxtrain
