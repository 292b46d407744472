// Multiplies few rows by the transpose of a quantized matrix, which is read once: numbers become floats in registers.
// A vector of 32-bit words has a number of each block of adjacent columns in every lane; rows of x are permuted to that
// order. Scales and zero points are applied to the sums of a block, y = Σ scale·(Σ q·x − zero·Σ x).
#include <algorithm>
#include <array>
#include <bit>

#include "backends/cpu/kernels/dequantize.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

inline constexpr int kMaxLanes = 64;

struct GemvColumn {
  const uint8_t* q;
  const float *scale, *zero;  // by block, followed by a vector of finite floats; null: no zero points
};

struct GemvTile {
  const GemvColumn* columns;
  int count;                  // of columns
  int64_t row_bytes;          // with numbers of a column
  int step_bits, block_bits;  // log2 of the numbers of a step, which reads a vector of each column, and of a block
  const int32_t* block_of_lane;
  const float *x, *sums;  // from GemvFunctions::permute
  int64_t x_step, sums_step;
  float* y;
  int64_t y_step;
};

struct GemvFunctions {
  // Writes a row x [n] in the order of the numbers, padded with zeros to whole steps, and for each lane of a step the
  // sum of its elements times `by`.
  void (*permute)(const float* x, int64_t n, float by, float* to, float* sums);
  std::array<void (*)(const GemvTile&), 3> multiply;  // 1, 2 and 4 rows of x
};

struct GemvSimd {
  int64_t lanes;
  GemvFunctions of_number[5];  // 2 bits, 4 bits, unsigned bytes, signed bytes, indices into kNf4
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/dequantized_gemv-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/dequantized_gemv-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(GemvTable);
namespace {

const GemvFunctions& FindFunctions(const GemvSimd& simd, const QuantizedMatrix& m) {
  if (m.nf4) return simd.of_number[4];
  return simd.of_number[m.bits == 2 ? 0 : m.bits == 4 ? 1 : m.is_signed ? 3 : 2];
}

// Products of more rows are faster by tiles (dequantized_product.cc).
constexpr int64_t kMaxGemvRows = 8;

int Log2(int64_t n) { return std::bit_width(static_cast<uint64_t>(n)) - 1; }

class DequantizedGemv {
 public:
  DequantizedGemv(RowReader<float> reader, int64_t rows) : reader_(std::move(reader)), rows_(rows) {
    const QuantizedMatrix& m = matrix();
    const int64_t per_word = 32 / m.bits, step = per_word * simd_.lanes;
    steps_ = (m.columns + step - 1) / step;
    step_bits_ = Log2(step);
    block_bits_ = m.block_columns < m.columns ? Log2(m.block_columns) : kNoBlocks;
    for (int64_t lane = 0; lane < simd_.lanes; ++lane)
      block_of_lane_[lane] = static_cast<int32_t>(lane * per_word >> block_bits_);
    group_ = std::clamp(kGroupBlocks / m.scale_columns() / kMinGroup * kMinGroup, kMinGroup, kMaxGroup);
  }

  // Each word must be part of one block.
  static bool Accepts(const QuantizedMatrix& m) {
    return !m.has_floats() &&
           (m.block_columns >= m.columns ||
            (m.block_columns >= 32 / m.bits && std::has_single_bit(static_cast<uint64_t>(m.block_columns))));
  }

  size_t workspace() const { return OperandBytes() + ScaleBytes() * omp_get_max_threads(); }

  void Run(const Args& args) const {
    const auto in = reader_.TakeOperands(args);
    auto* memory = static_cast<std::byte*>(args.workspace);
    const Operands x = PermuteRows(args.in(), reinterpret_cast<float*>(memory));
    const int64_t n = matrix().rows;
    Parallel((n + group_ - 1) / group_, group_ * matrix().columns * rows_ / kValuesPerAddition,
             [&](int64_t begin, int64_t end) {
               const Scales s = MakeScales(memory + OperandBytes() + omp_get_thread_num() * ScaleBytes());
               for (int64_t g = begin; g < end; ++g)
                 MultiplyGroup(in, x, {g * group_, std::min(group_, n - g * group_)}, s, args.out());
             });
  }

 private:
  using Reader = RowReader<float>;
  struct Operands {
    const float *x, *sums;
  };
  struct Range {
    int64_t begin, count;
  };
  struct Scales {
    float *scale, *zero;
    uint8_t* scratch;
  };

  static constexpr int kNoBlocks = 62;
  static constexpr int64_t kMinGroup = 4, kMaxGroup = 16, kGroupBlocks = 2048, kValuesPerAddition = 8;

  const QuantizedMatrix& matrix() const { return reader_.matrix(); }
  int64_t XFloats() const { return steps_ << step_bits_; }  // of a row
  int64_t SumFloats() const { return steps_ * simd_.lanes; }
  size_t OperandBytes() const { return Aligned64(rows_ * (XFloats() + SumFloats()) * sizeof(float)); }
  int64_t GroupBlocks() const { return group_ * matrix().scale_columns(); }
  int64_t GroupFloats() const { return GroupBlocks() + simd_.lanes; }
  size_t ScaleBytes() const {
    return 2 * Aligned64(GroupFloats() * sizeof(float)) + Aligned64(GroupBlocks() + Reader::kUnpackPadding);
  }

  Scales MakeScales(std::byte* memory) const {
    const size_t floats = Aligned64(GroupFloats() * sizeof(float));
    return {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + floats),
            reinterpret_cast<uint8_t*>(memory + 2 * floats)};
  }

  Operands PermuteRows(const float* x, float* memory) const {
    float* sums = memory + rows_ * XFloats();
    const float by = reader_.has_zero() ? -1.0f : -static_cast<float>(matrix().zero + offset_);
    for (int64_t i = 0; i < rows_; ++i)
      functions_.permute(x + i * matrix().columns, matrix().columns, by, memory + i * XFloats(),
                         sums + i * SumFloats());
    return {memory, sums};
  }

  // Computes y[:, columns].
  void MultiplyGroup(const Reader::Operands& in, const Operands& x, Range columns, const Scales& s, float* y) const {
    const QuantizedMatrix& m = matrix();
    const int64_t blocks = m.scale_columns();
    const float* stored = FindScales(in, columns);
    if (stored == nullptr) LoadScales(in, columns, s);
    std::array<GemvColumn, kMaxGroup> operands;
    for (int64_t j = 0; j < columns.count; ++j)
      operands[j] = {.q = in.q + (columns.begin + j) * m.row_bytes,
                     .scale = (stored == nullptr ? s.scale : stored) + j * blocks,
                     .zero = reader_.has_zero() ? s.zero + j * blocks : nullptr};
    GemvTile t{.columns = operands.data(),
               .count = static_cast<int>(columns.count),
               .row_bytes = (m.columns * m.bits + 7) / 8,
               .step_bits = step_bits_,
               .block_bits = block_bits_,
               .block_of_lane = block_of_lane_.data(),
               .x_step = XFloats(),
               .sums_step = SumFloats(),
               .y_step = m.rows};
    for (int64_t i = 0; i < rows_;) {
      const int function = std::min(Log2(rows_ - i), 2);
      t.x = x.x + i * t.x_step;
      t.sums = x.sums + i * t.sums_step;
      t.y = y + i * t.y_step + columns.begin;
      functions_.multiply[function](t);
      i += int64_t{1} << function;
    }
  }

  // Returns the stored scales of the columns if these can be read as they are: vectors read past the last one.
  const float* FindScales(const Reader::Operands& in, Range columns) const {
    const QuantizedMatrix& m = matrix();
    const bool last = (columns.begin + columns.count) * m.scale_columns() + simd_.lanes > m.rows * m.scale_columns();
    if (reader_.scale_type() != DType::kFloat32 || reader_.has_zero() || m.block_rows != 1 || last) return nullptr;
    return static_cast<const float*>(in.scale) + columns.begin * m.scale_columns();
  }

  void LoadScales(const Reader::Operands& in, Range columns, const Scales& s) const {
    const QuantizedMatrix& m = matrix();
    const int64_t blocks = m.scale_columns();
    const int64_t together = m.block_rows == 1 && reader_.has_adjacent_rows_of_zeros() ? columns.count : 1;
    for (int64_t j = 0; j < columns.count; j += together)
      reader_.ReadScales(in, (columns.begin + j) / m.block_rows, 0, together * blocks, s.scale + j * blocks,
                         s.zero + j * blocks, s.scratch);
    for (float* x : {s.scale, s.zero}) std::fill_n(x + columns.count * blocks, simd_.lanes, 0.0f);
    for (int64_t i = 0; offset_ != 0 && i < columns.count * blocks; ++i) s.zero[i] += static_cast<float>(offset_);
  }

  Reader reader_;
  int64_t rows_;
  const GemvSimd& simd_ = HWY_DYNAMIC_DISPATCH(GemvTable)();
  const GemvFunctions& functions_ = FindFunctions(simd_, reader_.matrix());
  const int offset_ = matrix().is_signed ? 128 : 0;  // signed bytes are multiplied as unsigned ones
  int64_t steps_, group_;                            // columns of y that share the scales in memory
  int step_bits_, block_bits_;
  std::array<int32_t, kMaxLanes> block_of_lane_{};
};

}  // namespace

std::optional<Kernel> MakeDequantizedGemv(const RowReader<float>& reader, int64_t rows) {
  if (rows > kMaxGemvRows || !DequantizedGemv::Accepts(reader.matrix())) return {};
  const DequantizedGemv product(reader, rows);
  return Kernel{.run = [product](const Args& args) { product.Run(args); }, .workspace = product.workspace()};
}

}  // namespace onnxtrain::cpu
