#include "backends/cpu/ops/matmul_ops.h"

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/runtime/guard.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

absl::StatusOr<std::vector<Type>> PackWeightTypes(const TypeContext& c) {
  const int64_t k = c.attrs.Int("k"), n = c.attrs.Int("n");
  const Shape expected = c.attrs.Int("trans") != 0 ? Shape{n, k} : Shape{k, n};
  const auto to = ParseDType(c.attrs.String("to"));
  if (!IsMultiplied(c.in(0).dtype) || c.in(0).shape != expected)
    return Invalid("expected ", ToString(expected), ", got ", ToString(c.in(0)));
  if (!to || !IsMultiplied(*to)) return Invalid("no products of ", c.attrs.String("to"));
  ASSIGN_OR_RETURN(const size_t bytes, PackedBytes(c.attrs.Int("rows"), k, n, *to));
  return std::vector<Type>{{DType::kUInt8, {static_cast<int64_t>(bytes)}}};
}

absl::StatusOr<std::vector<Type>> FusedMatMulTypes(const TypeContext& c) {
  Type y;
  if (c.attrs.Int("packed") != 0) {
    if (c.in(0).rank() < 2) return Invalid("expected a matrix, got ", ToString(c.in(0)));
    y = c.in(0);
    y.shape.back() = c.attrs.Int("n");
  } else {
    Attrs attrs = {{"trans_a", c.attrs.Int("trans_a")}, {"trans_b", c.attrs.Int("trans_b")}};
    ASSIGN_OR_RETURN(auto types, InferTypes("MatMul", c.inputs.first(2), attrs));
    y = types[0];
  }
  if (!c.attrs.String("to").empty()) {
    const auto to = ParseDType(c.attrs.String("to"));
    if (!to || !IsMultiplied(*to) || !IsMultiplied(y.dtype)) return Invalid("no products of ", c.attrs.String("to"));
    y.dtype = *to;
  }
  const bool bias_type = !c.has(2) || c.in(2).dtype == DType::kFloat32 || c.in(2).dtype == c.in(0).dtype;
  const bool sums = y.dtype == DType::kFloat32 && c.attrs.String("activation").empty();
  if (c.has(3) && (c.in(3) != y || !sums))
    return Invalid("expected only an accumulator of ", ToString(y), ", got ", ToString(c.in(3)));
  if (c.has(2) && (!bias_type || c.in(2).shape != Shape{y.shape.back()})) {
    return Invalid("expected a bias of ", y.shape.back(), " elements, got ", ToString(c.in(2)));
  }
  return std::vector<Type>{y};
}

double FusedMatMulFlops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const Type& a = *inputs[0];
  const int64_t k = a.shape[a.rank() - (attrs.Int("trans_a") != 0 ? 2 : 1)];
  return 2.0 * static_cast<double>(outputs[0].elements()) * static_cast<double>(k);
}

}  // namespace

bool IsMultiplied(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

absl::StatusOr<size_t> PackedBytes(int64_t rows, int64_t k, int64_t n, DType dtype) {
  size_t bytes = 0;
  RETURN_IF_ERROR(CatchDnnlErrors([&] {
    if (const auto layout = PackedLayout(rows, k, n, dtype)) bytes = layout->get_size();
  }));
  return bytes;
}

std::vector<OpRow> MatMulRows() {
  const int64_t zero = 0;
  return {
      {.name = "cpu.MatMul",
       .inputs = {2, 4},  // a, b, bias, accumulator
       .attrs = {{"trans_a", zero},
                 {"trans_b", zero},
                 {"packed", zero},
                 {"n", zero},
                 {"activation", std::string()},
                 {"to", std::string()}},
       .infer = FusedMatMulTypes,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = FusedMatMulFlops,
       .overwrites = 1u << 3},
      {.name = "cpu.PackWeight",
       .attrs =
           {{"rows", zero, true}, {"k", zero, true}, {"n", zero, true}, {"trans", zero}, {"to", std::string("f32")}},
       .infer = PackWeightTypes,
       .recompute = Recompute::kExpensive,
       .derive = true}};
}

}  // namespace onnxtrain::cpu
