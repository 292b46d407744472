#include "backends/cpu/kernels/dequantize.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {

// n adjacent numbers of a row. The first `first` ones have zero point zero[0] and scale scale[0], the next `length`
// ones zero[1] and scale[1], and so on.
struct NumberRuns {
  int64_t n, first, length;
  const float *zero, *scale;
};

// An element of type float16.
struct Float16 {
  uint16_t bits;
};

// An index into kNf4.
struct Nf4 {
  uint8_t index;
};

template <typename T, typename Number>
T ToNumber(Number x) {
  if constexpr (std::is_same_v<Number, Float16>) {
    return static_cast<T>(HalfToFloat(x.bits));
  } else if constexpr (std::is_same_v<Number, BFloat16>) {
    return static_cast<T>(BFloat16ToFloat(x.bits));
  } else if constexpr (std::is_same_v<Number, Nf4>) {
    return static_cast<T>(kNf4[x.index]);
  } else {
    return static_cast<T>(x);
  }
}

using ScaleFunction = void (*)(const uint8_t* numbers, const NumberRuns& runs, float* y);

// Arrays have a function each for unsigned bytes, signed bytes, float16, bfloat16, float32 and indices into kNf4.
struct DequantizeSimd {
  void (*unpack_nibbles)(const uint8_t* packed, int64_t n, uint8_t* numbers);
  ScaleFunction scale_runs[6], scale_columns[6];  // scale_columns has runs of one number
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/dequantize-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/dequantize-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(DequantizeTable);
namespace {

int FindNumber(const QuantizedMatrix& m, DType stored) {
  if (m.nf4) return 5;
  if (!m.has_floats()) return m.is_signed ? 1 : 0;
  return stored == DType::kFloat16 ? 2 : stored == DType::kBFloat16 ? 3 : 4;
}

template <typename T, typename Number>
void ScaleAs(const uint8_t* numbers, int64_t n, int64_t first, int64_t length, const T* zero, const T* scale, T* y) {
  const auto* q = reinterpret_cast<const Number*>(numbers);
  int64_t i = 0;
  for (int64_t b = 0, end = std::min(first, n); i < n; ++b, end = std::min(end + length, n)) {
    for (; i < end; ++i) y[i] = (ToNumber<T>(q[i]) - zero[b]) * scale[b];
  }
}

}  // namespace

template <typename T>
RowReader<T>::RowReader(const QuantizedMatrix& matrix, DType stored, DType scale, const Type* zero, size_t first)
    : simd_(HWY_DYNAMIC_DISPATCH(DequantizeTable)()),
      m_(matrix),
      scale_(scale),
      zero_(zero == nullptr ? DType::kUInt8 : zero->dtype),
      first_(first),
      number_(FindNumber(matrix, stored)),
      has_zero_(zero != nullptr),
      signed_zero_(zero_ == DType::kInt8 || zero_ == DType::kInt4 || zero_ == DType::kInt2) {}

template <typename T>
absl::StatusOr<RowReader<T>> RowReader<T>::Create(const KernelContext& c, size_t first) {
  const Type* zero = c.has(first + 2) ? &c.in(first + 2) : nullptr;
  ASSIGN_OR_RETURN(const QuantizedMatrix m, ReadQuantizedMatrix(c.attrs(), c.in(first), c.in(first + 1), zero));
  return RowReader<T>(m, c.in(first).dtype, c.in(first + 1).dtype, zero, first);
}

template <typename T>
typename RowReader<T>::Scratch RowReader<T>::MakeScratch(std::byte* memory, int64_t n) {
  const size_t floats = Aligned64((n + 2) * sizeof(T));
  return {.scale = reinterpret_cast<T*>(memory),
          .zero = reinterpret_cast<T*>(memory + floats),
          .numbers = reinterpret_cast<uint8_t*>(memory + 2 * floats)};
}

template <typename T>
void RowReader<T>::Read(const Operands& in, int64_t row, int64_t column, int64_t n, Scratch* scratch, T* y) const {
  LoadScales(in, row / m_.block_rows, column, n, scratch);
  const uint8_t* numbers = in.q + row * m_.row_bytes + column * m_.bits / 8;
  if (m_.bits < 8) {
    Unpack(numbers, m_.bits, n, scratch->numbers);
    numbers = scratch->numbers;
  }
  const int64_t length = m_.block_columns, first = length - column % length;
  if constexpr (std::is_same_v<T, float>) {
    const auto& scale = length == 1 ? simd_.scale_columns : simd_.scale_runs;
    scale[number_](numbers, {n, first, length, scratch->zero, scratch->scale}, y);
  } else {
    constexpr std::array kScale = {ScaleAs<T, uint8_t>,  ScaleAs<T, int8_t>, ScaleAs<T, Float16>,
                                   ScaleAs<T, BFloat16>, ScaleAs<T, float>,  ScaleAs<T, Nf4>};
    kScale[number_](numbers, n, first, length, scratch->zero, scratch->scale, y);
  }
}

template <typename T>
void RowReader<T>::LoadScales(const Operands& in, int64_t block_row, int64_t column, int64_t n,
                              Scratch* scratch) const {
  if (scratch->block_row == block_row && scratch->column == column && scratch->n == n) return;
  scratch->block_row = block_row;
  scratch->column = column;
  scratch->n = n;
  const int64_t first = column / m_.block_columns, count = (column + n - 1) / m_.block_columns + 1 - first;
  ReadScales(in, block_row, first, count, scratch->scale, scratch->zero, scratch->numbers);
}

template <typename T>
void RowReader<T>::ReadScales(const Operands& in, int64_t block_row, int64_t first, int64_t count, T* scale, T* zero,
                              uint8_t* numbers) const {
  const int64_t begin = block_row * m_.scale_columns() + first;
  ReadFloats(in.scale, scale_, begin, count, scale);
  if (!has_zero_) {
    std::fill_n(zero, count, static_cast<T>(m_.zero));
  } else if (IsFloat(zero_)) {
    ReadFloats(in.zero, zero_, begin, count, zero);
  } else {
    ReadZeros(static_cast<const uint8_t*>(in.zero) + block_row * m_.zero_row_bytes(), first, count, zero, numbers);
  }
}

// Reads n elements of a float type from index `begin` on.
template <typename T>
void RowReader<T>::ReadFloats(const void* from, DType dtype, int64_t begin, int64_t n, T* y) const {
  const auto read = [&]<typename From>(const From* x) {
    for (int64_t i = 0; i < n; ++i) y[i] = ToNumber<T>(x[begin + i]);
  };
  if (dtype == DType::kFloat32) return read(static_cast<const float*>(from));
  if (dtype == DType::kFloat64) return read(static_cast<const double*>(from));
  dtype == DType::kFloat16 ? read(static_cast<const Float16*>(from)) : read(static_cast<const BFloat16*>(from));
}

// Reads the zero points of the blocks from `first` on.
template <typename T>
void RowReader<T>::ReadZeros(const uint8_t* row, int64_t first, int64_t count, T* zero, uint8_t* numbers) const {
  const int64_t per_byte = 8 / m_.zero_bits, skipped = first % per_byte;
  row += first / per_byte;
  if (m_.zero_bits < 8) {
    Unpack(row, m_.zero_bits, skipped + count, numbers);
    row = numbers + skipped;
  }
  for (int64_t i = 0; i < count; ++i) zero[i] = signed_zero_ ? static_cast<int8_t>(row[i]) : row[i];
}

template <typename T>
void RowReader<T>::Unpack(const uint8_t* packed, int64_t bits, int64_t n, uint8_t* numbers) const {
  if (bits == 4) return simd_.unpack_nibbles(packed, n, numbers);
  for (int64_t i = 0; i < n; ++i) numbers[i] = packed[i / 4] >> (i % 4 * 2) & 3;
}

template class RowReader<float>;
template class RowReader<double>;

namespace {

template <typename T>
absl::StatusOr<Kernel> MakeDequantize(const KernelContext& c) {
  ASSIGN_OR_RETURN(const RowReader<T> reader, RowReader<T>::Create(c, 0));
  const int64_t rows = reader.matrix().rows, columns = reader.matrix().columns;
  const size_t each = RowReader<T>::ScratchBytes(columns);
  return Kernel{.run =
                    [=](const Args& args) {
                      const auto in = reader.TakeOperands(args);
                      Parallel(rows, columns, [&](int64_t begin, int64_t end) {
                        auto* memory = static_cast<std::byte*>(args.workspace) + omp_get_thread_num() * each;
                        auto scratch = RowReader<T>::MakeScratch(memory, columns);
                        for (int64_t row = begin; row < end; ++row)
                          reader.Read(in, row, 0, columns, &scratch, args.out<T>() + row * columns);
                      });
                    },
                .workspace = each * omp_get_max_threads()};
}

}  // namespace

absl::StatusOr<Kernel> PrepareDequantize(const KernelContext& c) {
  return c.out().dtype == DType::kFloat64 ? MakeDequantize<double>(c) : MakeDequantize<float>(c);
}

bool AcceptsDequantize(const KernelContext& c) {
  return IsStoredForKernels(c.in()) && (c.out().dtype == DType::kFloat32 || c.out().dtype == DType::kFloat64);
}

}  // namespace onnxtrain::cpu
