#include "frontend/graph/type.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

struct DTypeInfo {
  std::string_view name;
  size_t size;
};

constexpr std::array<DTypeInfo, 23> kInfo = {{
    {"f32", 4},    {"f64", 8},      {"f16", 2},        {"bf16", 2},   {"i8", 1},         {"i16", 2},
    {"i32", 4},    {"i64", 8},      {"u8", 1},         {"u16", 2},    {"u32", 4},        {"u64", 8},
    {"bool", 1},   {"f8e4m3fn", 1}, {"f8e4m3fnuz", 1}, {"f8e5m2", 1}, {"f8e5m2fnuz", 1}, {"f8e8m0", 1},
    {"f4e2m1", 1}, {"i4", 1},       {"u4", 1},         {"i2", 1},     {"u2", 1},
}};

constexpr int64_t kMaxElements = int64_t{1} << 40;

}  // namespace

size_t DTypeSize(DType dtype) { return kInfo[static_cast<size_t>(dtype)].size; }

std::string_view ToString(DType dtype) { return kInfo[static_cast<size_t>(dtype)].name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsFloat(DType dtype) { return dtype <= DType::kBFloat16; }

bool IsInteger(DType dtype) { return dtype > DType::kBFloat16 && dtype < DType::kBool; }

bool IsStorage(DType dtype) { return dtype > DType::kBool; }

bool IsSmallFloat(DType dtype) { return dtype >= DType::kFloat8E4M3FN && dtype <= DType::kFloat4E2M1; }

int StorageBits(DType dtype) {
  if (dtype == DType::kInt2 || dtype == DType::kUInt2) return 2;
  return dtype >= DType::kFloat4E2M1 ? 4 : 8 * static_cast<int>(DTypeSize(dtype));
}

int64_t NumElements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

absl::Status CheckShape(const Shape& shape) {
  if (shape.size() > 32) return Invalid("a shape of rank ", shape.size(), " is above the limit of 32");
  int64_t n = 1;
  for (int64_t d : shape) {
    if (d < 0) return Invalid("shape ", ToString(shape), " has a negative extent");
    // Zero extents must not hide an overflow of the others.
    if (d != 0 && n > kMaxElements / d) return Invalid("shape ", ToString(shape), " has more than 2^40 elements");
    if (d != 0) n *= d;
  }
  return absl::OkStatus();
}

Shape Strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

std::string ToString(const Shape& shape) { return StrCat("[", absl::StrJoin(shape, ","), "]"); }

std::string ToString(const Type& type) {
  const std::string layout = type.layout == Layout::kChannelsLast ? ":nhwc"
                             : type.layout == Layout::kPacked     ? StrCat(":packed(", type.packed_bytes, ")")
                                                                  : "";
  return StrCat(ToString(type.dtype), ToString(type.shape), layout);
}

Shape ToChannelsLast(Shape shape) {
  if (shape.size() > 2) std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  return shape;
}

Shape ToChannelsFirst(Shape shape) {
  if (shape.size() > 2) std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
  return shape;
}

Shape PhysicalShape(const Type& type) {
  return type.layout == Layout::kChannelsLast ? ToChannelsLast(type.shape) : type.shape;
}

bool IsTrivialChannelsLast(const Shape& shape) {
  return shape.size() < 3 || shape[1] == 1 ||
         std::all_of(shape.begin() + 2, shape.end(), [](int64_t d) { return d == 1; });
}

std::optional<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {  // i counts from the innermost axis
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace onnxtrain
