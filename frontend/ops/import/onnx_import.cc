#include "frontend/ops/import/onnx_import.h"

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

struct OnnxType {
  int number;
  DType dtype;
};

// The numbers of TensorProto.DataType in onnx.proto.
constexpr OnnxType kOnnxTypes[] = {
    {1, DType::kFloat32},
    {2, DType::kUInt8},
    {3, DType::kInt8},
    {4, DType::kUInt16},
    {5, DType::kInt16},
    {6, DType::kInt32},
    {7, DType::kInt64},
    {9, DType::kBool},
    {10, DType::kFloat16},
    {11, DType::kFloat64},
    {12, DType::kUInt32},
    {13, DType::kUInt64},
    {16, DType::kBFloat16},
    {17, DType::kFloat8E4M3FN},
    {18, DType::kFloat8E4M3FNUZ},
    {19, DType::kFloat8E5M2},
    {20, DType::kFloat8E5M2FNUZ},
    {21, DType::kUInt4},
    {22, DType::kInt4},
    {23, DType::kFloat4E2M1},
    {24, DType::kFloat8E8M0},
    {25, DType::kUInt2},
    {26, DType::kInt2},
};

}  // namespace

std::optional<DType> DTypeFromOnnx(int64_t onnx_type) {
  for (const OnnxType& t : kOnnxTypes) {
    if (t.number == onnx_type) return t.dtype;
  }
  return std::nullopt;
}

int64_t DTypeToOnnx(DType dtype) {
  for (const OnnxType& t : kOnnxTypes) {
    if (t.dtype == dtype) return t.number;
  }
  return 0;
}

absl::StatusOr<std::vector<int64_t>> ImportContext::KnownInts(size_t i, std::string_view what) {
  const HostTensor* t = Known(i);
  if (t == nullptr) return Invalid("input ", i, " (", what, ") must be a constant");
  return t->ToInts();
}

absl::StatusOr<std::vector<double>> ImportContext::KnownDoubles(size_t i, std::string_view what) {
  const HostTensor* t = Known(i);
  if (t == nullptr) return Invalid("input ", i, " (", what, ") must be a constant");
  return t->ToDoubles();
}

absl::StatusOr<std::vector<int64_t>> ImportContext::IntsFromAttrOrInput(std::string_view name, size_t i,
                                                                        std::vector<int64_t> otherwise) {
  if (const auto* ints = attrs().Find<std::vector<int64_t>>(name)) return *ints;
  if (!has(i)) return otherwise;
  return KnownInts(i, name);
}

}  // namespace onnxtrain
