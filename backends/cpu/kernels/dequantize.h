// Reads rows of quantized matrices (frontend/ops/dequantize.h) as floats, and declares the kernels of such matrices,
// whose rows are in matmul.cc.
#pragma once

#include <optional>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "frontend/ops/dequantize.h"

namespace onnxtrain::cpu {

struct DequantizeSimd;

// Dequantizes segments of rows of a matrix to T, float or double.
template <typename T>
class RowReader {
 public:
  // The matrix, its scale and its zero point are the inputs of the node from `first` on.
  static absl::StatusOr<RowReader> Create(const KernelContext& c, size_t first);

  const QuantizedMatrix& matrix() const { return m_; }
  // Segments begin at multiples of this number of columns.
  static constexpr int64_t kAligned = 4;

  struct Operands {
    const uint8_t* q;
    const void *scale, *zero;
  };
  Operands TakeOperands(const Args& args) const {
    return {args.in<uint8_t>(first_), args.in<void>(first_ + 1), has_zero_ ? args.in<void>(first_ + 2) : nullptr};
  }

  // Scratch memory of one thread for segments of up to n columns, not owned.
  struct Scratch {
    T *scale, *zero;
    uint8_t* numbers;
    int64_t block_row = -1, column = -1, n = 0;  // the segment whose scales are loaded
  };
  static size_t ScratchBytes(int64_t n) {
    return 2 * Aligned64((n + 2) * sizeof(T)) + Aligned64(n + 2 + kUnpackPadding);
  }
  static Scratch MakeScratch(std::byte* memory, int64_t n);

  bool has_zero() const { return has_zero_; }
  DType scale_type() const { return scale_; }
  // Returns true if the zero points of a row of blocks end with a byte, so that those of the next one follow them.
  bool has_adjacent_rows_of_zeros() const {
    return !has_zero_ || IsFloat(zero_) || m_.scale_columns() * m_.zero_bits % 8 == 0;
  }
  // Writes the scales and zero points of `count` blocks from block `first` of a row of blocks on. Those of following
  // rows are among them if they are adjacent. `numbers` is scratch memory for count + kUnpackPadding bytes.
  void ReadScales(const Operands& in, int64_t block_row, int64_t first, int64_t count, T* scale, T* zero,
                  uint8_t* numbers) const;
  static constexpr int64_t kUnpackPadding = 64;

  // Writes the elements [column, column + n) of a row to y.
  void Read(const Operands& in, int64_t row, int64_t column, int64_t n, Scratch* scratch, T* y) const;

 private:
  RowReader(const QuantizedMatrix& matrix, DType stored, DType scale, const Type* zero, size_t first);

  void LoadScales(const Operands& in, int64_t block_row, int64_t column, int64_t n, Scratch* scratch) const;
  void ReadFloats(const void* from, DType dtype, int64_t begin, int64_t n, T* y) const;
  void ReadZeros(const uint8_t* row, int64_t first, int64_t count, T* zero, uint8_t* numbers) const;
  void Unpack(const uint8_t* packed, int64_t bits, int64_t n, uint8_t* numbers) const;

  const DequantizeSimd& simd_;
  QuantizedMatrix m_;
  DType scale_, zero_;
  size_t first_;
  int number_;  // index of the type of its unpacked numbers in DequantizeSimd
  bool has_zero_, signed_zero_;
};

// Returns true for the stored types that RowReader reads: all but float64, whose rows decompose.
inline bool IsStoredForKernels(const Type& q) { return q.dtype != DType::kFloat64; }

absl::StatusOr<Kernel> PrepareDequantize(const KernelContext& c);
bool AcceptsDequantize(const KernelContext& c);

// Converts between floats and the 8-bit dynamic code; positions must be at the beginning of a block.
struct DynamicTables;
struct DynamicSimd;
class DynamicCoder {
 public:
  explicit DynamicCoder(bool is_signed);
  void Decode(const uint8_t* codes, const float* scales, int64_t n, float* y) const;
  void Encode(const float* x, int64_t n, uint8_t* codes, float* scales) const;

 private:
  const DynamicTables& tables_;
  const DynamicSimd& simd_;
};

// dynamic_code.cc
absl::StatusOr<Kernel> PrepareQuantizeDynamic(const KernelContext& c);
absl::StatusOr<Kernel> PrepareDequantizeDynamic(const KernelContext& c);
// Returns the kernel of x·Wᵀ for `rows` rows x; nullopt if these are too many, or the matrix has floats or small
// blocks.
std::optional<Kernel> MakeDequantizedGemv(const RowReader<float>& reader, int64_t rows);

absl::StatusOr<Kernel> PrepareMatMulDequantized(const KernelContext& c);
bool AcceptsMatMulDequantized(const KernelContext& c);

}  // namespace onnxtrain::cpu
