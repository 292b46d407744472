#include <cmath>

#include "frontend/ops/dequantize.h"

#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

// A stored matrix and the blocks of its scales.
struct Stored {
  std::string_view name;
  int64_t rows, columns;
  int64_t bits;
  DType dtype;
  Shape block;
  Input zero;
  int64_t zero_bits = 8;
  bool nf4 = false;
};

Input Numbers(const Stored& s) {
  if (IsFloat(s.dtype)) {
    Input halves = Fixed(Uniform({s.rows, s.columns}, -2, 2));
    halves.type.dtype = s.dtype;
    return halves;
  }
  const bool is_signed = s.dtype == DType::kInt8 || s.dtype == DType::kInt4;
  const int64_t most = s.bits < 8 ? 255 : s.dtype == DType::kInt4 ? 7 : s.dtype == DType::kUInt4 ? 15 : 127;
  return Ints({s.rows, (s.columns * s.bits + 7) / 8}, is_signed ? -most - 1 : 0, most, s.dtype);
}

std::vector<Stored> StoredMatrices() {
  constexpr DType kU8 = DType::kUInt8, kI8 = DType::kInt8;
  return {
      {"", 19, 70, 4, kU8, {1, 32}, Absent()},
      {"_packed_zeros", 19, 70, 4, kU8, {1, 16}, Ints({19, 3}, 0, 255, kU8), 4},
      {"_float_zeros", 19, 64, 4, kU8, {1, 16}, Fixed(Uniform({19, 4}, 0, 15))},
      {"_two_bits", 9, 33, 2, kU8, {1, 16}, Ints({9, 1}, 0, 255, kU8), 2},
      {"_bytes", 9, 257, 8, kU8, {1, 128}, Ints({9, 3}, 0, 255, kU8)},
      {"_whole", 9, 21, 8, kI8, {9, 21}, Absent()},
      {"_by_row", 9, 21, 8, kI8, {1, 21}, Ints({9, 1}, -8, 8, kI8)},
      {"_by_column", 150, 67, 8, kI8, {150, 1}, Ints({1, 67}, -8, 8, kI8)},
      {"_blocks_of_rows", 150, 7, 8, DType::kInt4, {16, 1}, Absent()},
      {"_unsigned_blocks_of_rows", 40, 7, 8, DType::kUInt4, {16, 1}, Ints({3, 7}, 0, 15, DType::kUInt4)},
      {"_one_column", 33, 1, 4, kU8, {1, 32}, Absent()},
      {"_one_row", 1, 1100, 4, kU8, {1, 32}, Absent()},
      {"_nf4", 19, 150, 4, kU8, {1, 64}, Absent(), 8, true},
      {"_nf4_blocks_of_rows", 150, 67, 4, kU8, {64, 1}, Absent(), 8, true},
      {"_nibbles_in_blocks_of_rows", 70, 67, 4, kU8, {32, 1}, Ints({3, 34}, 0, 255, kU8), 4},
      {"_long_rows", 21, 1100, 4, kU8, {1, 32}, Absent()},
      {"_long_rows_packed_zeros", 21, 1024, 4, kU8, {1, 128}, Ints({21, 4}, 0, 255, kU8), 4},
      {"_long_rows_two_bits", 5, 1000, 2, kU8, {1, 64}, Ints({5, 4}, 0, 255, kU8), 2},
      {"_long_rows_bytes", 5, 350, 8, kU8, {1, 16}, Absent()},
      {"_long_rows_signed_bytes", 5, 350, 8, kI8, {1, 32}, Ints({5, 11}, -8, 8, kI8)},
      {"_long_rows_nf4", 6, 1100, 4, kU8, {1, 64}, Absent(), 8, true},
      {"_small_blocks", 5, 200, 4, kU8, {1, 8}, Absent()},
      {"_smaller_blocks", 5, 200, 4, kU8, {1, 4}, Absent()},
      {"_odd_blocks", 5, 200, 4, kU8, {1, 24}, Absent()},
      {"_square_blocks", 19, 200, 4, kU8, {4, 32}, Ints({5, 4}, 0, 255, kU8), 4},
      {"_half", 70, 67, 16, DType::kFloat16, {70, 67}, Absent()},
      {"_bfloat", 9, 130, 16, DType::kBFloat16, {9, 130}, Absent()},
      {"_half_blocks", 33, 70, 16, DType::kFloat16, {1, 32}, Fixed(Uniform({33, 3}, -1, 1))},
  };
}

// Dequantize, and products with the matrix and its transpose. Kernels for one, few and more rows differ.
void AddCases(const Stored& s, std::vector<Case>* cases) {
  const QuantizedMatrix m{.rows = s.rows,
                          .columns = s.columns,
                          .bits = s.bits,
                          .block_rows = s.block[0],
                          .block_columns = s.block[1],
                          .zero_bits = s.zero_bits,
                          .zero = s.zero.absent && !s.nf4 ? 3.0 : 0.0,
                          .nf4 = s.nf4};
  const Input scale = Fixed(Uniform({m.scale_rows(), m.scale_columns()}, 0.01, 0.1));
  cases->push_back({"Dequantize" + std::string(s.name), "Dequantize", {Numbers(s), scale, s.zero}, m.ToAttrs()});
  for (const bool transposed : {false, true}) {
    Attrs attrs = m.ToAttrs();
    attrs.Set("transposed", int64_t{transposed});
    const std::string name = "MatMulDequantized" + std::string(s.name) + (transposed ? "_transposed" : "");
    const int64_t inner = transposed ? s.columns : s.rows;
    cases->push_back({name, "MatMulDequantized", {Normal({2, 7, inner}), Numbers(s), scale, s.zero}, attrs});
    for (const int64_t rows : {1, 3})
      cases->push_back({StrCat(name, "_", rows, "_rows"),
                        "MatMulDequantized",
                        {Normal({rows, inner}), Numbers(s), scale, s.zero},
                        attrs});
  }
}

// Products with one of three matrices for each row: as many indices as rows, two for each row, one group without rows.
void AddGroupedCases(std::vector<Case>* cases) {
  struct Stack {
    std::string_view name;
    int64_t rows, columns, bits;
    DType dtype;
    Shape block;
  };
  const int64_t groups = 3;
  const auto ids = [](const IntVector& values) { return IntValues({std::ssize(values)}, values); };
  for (const Stack& s :
       {Stack{"_floats", 10, 70, 0, DType::kFloat32, {30, 70}}, Stack{"_half", 9, 33, 0, DType::kFloat16, {27, 33}},
        Stack{"_nibbles", 19, 70, 4, DType::kUInt8, {1, 32}}, Stack{"_wide", 5, 1100, 8, DType::kInt8, {1, 64}}}) {
    const QuantizedMatrix m{.rows = groups * s.rows,
                            .columns = s.columns,
                            .bits = s.bits == 0 ? static_cast<int64_t>(DTypeSize(s.dtype)) * 8 : s.bits,
                            .block_rows = s.block[0],
                            .block_columns = s.block[1]};
    const Input numbers = s.dtype == DType::kFloat32
                              ? Normal({m.rows, m.columns})
                              : Numbers({"", m.rows, m.columns, m.bits, s.dtype, s.block, Absent()});
    const Input scale = Fixed(Uniform({m.scale_rows(), m.scale_columns()}, 0.5, 1));
    for (const int64_t transposed : {0, 1}) {
      Attrs attrs = m.ToAttrs();
      attrs.Set("groups", groups);
      attrs.Set("transposed", transposed);
      const int64_t inner = transposed != 0 ? s.columns : s.rows;
      const std::string name = StrCat("GroupedMatMul", s.name, transposed != 0 ? "_transposed" : "");
      cases->push_back(
          {name, "GroupedMatMul", {Normal({8, inner}), ids({2, 0, 0, 2, -1, 0, 2, 0}), numbers, scale}, attrs});
      cases->push_back(
          {name + "_repeated", "GroupedMatMul", {Normal({2, inner}), ids({2, 0, 1, 1}), numbers, scale}, attrs});
    }
  }
  const Attrs attrs = {{"groups", groups}};
  const std::string_view grad = "GroupedMatMulWeightGrad";
  cases->push_back({"GroupedMatMulWeightGrad",
                    std::string(grad),
                    {Normal({8, 5}), Normal({8, 7}), ids({2, 0, 0, 2, -3, 0, 2, 0})},
                    attrs});
  cases->push_back({"GroupedMatMulWeightGrad_repeated",
                    std::string(grad),
                    {Normal({8, 5}), Normal({4, 7}), ids({2, 0, 1, 1, 1, 0, 2, 0})},
                    attrs});
}

// The last blocks are full, cut, and alone; one of the blocks is all zeros.
void AddDynamicCases(std::vector<Case>* cases) {
  std::vector<double> zeros(600, 0);
  for (int i = 256; i < 512; ++i) zeros[i] = std::exp2(-i % 40) * (i % 3 - 1);
  for (const int64_t is_signed : {0, 1}) {
    const std::string name = is_signed != 0 ? "_signed" : "_unsigned";
    const double least = is_signed != 0 ? -2 : 0;
    const Attrs attrs = {{"signed", is_signed}};
    for (const Shape& shape : {Shape{3, 512}, {7, 100}, {5}}) {
      const std::string size = StrCat("_", NumElements(shape));
      const int64_t blocks = (NumElements(shape) + 255) / 256;
      cases->push_back(
          {StrCat("QuantizeDynamic", name, size), "QuantizeDynamic", {Fixed(Uniform(shape, least, 2))}, attrs});
      cases->push_back({StrCat("DequantizeDynamic", name, size),
                        "DequantizeDynamic",
                        {Ints(shape, 0, 255, DType::kUInt8), Fixed(Uniform({blocks}, 0, 2))},
                        attrs});
    }
    cases->push_back(
        {StrCat("QuantizeDynamic", name, "_zeros"), "QuantizeDynamic", {Fixed(Values({600}, zeros))}, attrs});
  }
}

}  // namespace

std::vector<Case> QuantizeCases() {
  std::vector<Case> cases = {
      {"StraightThrough", "StraightThrough", {Fixed(Normal({3, 5})), Normal({3, 5})}, {}},
      {"StraightThrough_stop", "StraightThrough", {Fixed(Normal({4}))}, {}},
  };
  for (const Stored& s : StoredMatrices()) AddCases(s, &cases);
  AddGroupedCases(&cases);
  AddDynamicCases(&cases);
  return cases;
}

}  // namespace onnxtrain::cases
