// Products with matrices of stored numbers, which are dequantized a tile at a time: a thread converts a tile that fits
// its cache to float32 and multiplies all rows of x by it. No buffer has the size of the matrix.
#include "backends/cpu/kernels/dequantize.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"
#include "frontend/base/status.h"
#include "frontend/ops/dequantize.h"

namespace onnxtrain::cpu {

// n adjacent numbers of a row. The first `first` ones have the zero point zero[0] and the scale scale[0], the next
// `length` ones zero[1] and scale[1], and so on.
struct NumberRuns {
  int64_t n, first, length;
  const float *zero, *scale;
};

// y (+)= x·w over `depth` elements, for the rows of x that the function is made for.
struct ProductTile {
  const float *x, *w;
  int64_t x_step, w_step, depth;  // steps from a row to the next one
  float* y;
  int64_t y_step, columns;
  bool adds;
};

inline constexpr int kMaxTileRows = 6, kDotColumns = 4;
inline constexpr int64_t kPanelColumns = 64;

using ScaleFunction = void (*)(const uint8_t* numbers, const NumberRuns& runs, float* y);
using TileFunctions = std::array<void (*)(const ProductTile&), kMaxTileRows>;  // for 1, 2 … rows of x

struct DequantizeSimd {
  void (*unpack_nibbles)(const uint8_t* packed, int64_t n, uint8_t* numbers);
  ScaleFunction scale_runs[2], scale_columns[2];  // of unsigned and signed bytes; scale_columns: each run is one number
  int rows;                                       // of the largest tile
  TileFunctions dot;  // w [columns, depth], at most kDotColumns; reads kDotColumns rows of it
  TileFunctions sum;  // w [depth, kPanelColumns]; reads and writes kPanelColumns columns
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/dequantize-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/dequantize-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(DequantizeTable);
namespace {

const DequantizeSimd& Simd() { return HWY_DYNAMIC_DISPATCH(DequantizeTable)(); }

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// y[i] = from[begin + i], elements of a float type.
template <typename T>
void ReadFloats(const void* from, DType dtype, int64_t begin, int64_t n, T* y) {
  const auto read = [&]<typename From>(const From* x, auto convert) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(convert(x[begin + i]));
  };
  const auto same = [](auto x) { return x; };
  if (dtype == DType::kFloat32) return read(static_cast<const float*>(from), same);
  if (dtype == DType::kFloat64) return read(static_cast<const double*>(from), same);
  const auto* halves = static_cast<const uint16_t*>(from);
  dtype == DType::kFloat16 ? read(halves, HalfToFloat)
                           : read(halves, [](uint16_t bits) { return BFloat16ToFloat(bits); });
}

// Dequantizes segments of rows of a matrix to T, float or double.
template <typename T>
class RowReader {
 public:
  RowReader(const QuantizedMatrix& matrix, DType scale, const Type* zero)
      : m_(matrix), scale_(scale), has_zero_(zero != nullptr) {
    if (has_zero_) zero_ = zero->dtype;
    signed_zero_ = zero_ == DType::kInt8 || zero_ == DType::kInt4 || zero_ == DType::kInt2;
  }

  const QuantizedMatrix& matrix() const { return m_; }
  // Columns at which a segment may begin are multiples of this.
  static constexpr int64_t kAligned = 4;

  struct Operands {
    const uint8_t* q;
    const void *scale, *zero;
  };

  // Memory of one thread for segments of up to n columns.
  struct Scratch {
    T *scale, *zero;
    uint8_t* numbers;
    int64_t block_row = -1, column = -1, n = 0;  // whose scales it holds
  };
  static size_t ScratchBytes(int64_t n) { return 2 * Aligned64((n + 2) * sizeof(T)) + Aligned64(n + 64); }
  static Scratch MakeScratch(std::byte* memory, int64_t n) {
    const size_t floats = Aligned64((n + 2) * sizeof(T));
    return {.scale = reinterpret_cast<T*>(memory),
            .zero = reinterpret_cast<T*>(memory + floats),
            .numbers = reinterpret_cast<uint8_t*>(memory + 2 * floats)};
  }

  // Writes the elements [column, column + n) of a row.
  void Read(const Operands& in, int64_t row, int64_t column, int64_t n, Scratch* scratch, T* y) const {
    LoadScales(in, row / m_.block_rows, column, n, scratch);
    const uint8_t* numbers = in.q + row * m_.row_bytes + column * m_.bits / 8;
    if (m_.bits < 8) {
      Unpack(numbers, m_.bits, n, scratch->numbers);
      numbers = scratch->numbers;
    }
    const int64_t length = m_.block_columns;
    const NumberRange range{n, length - column % length, length};
    if constexpr (std::is_same_v<T, float>) {
      const auto& scale = length == 1 ? simd_.scale_columns : simd_.scale_runs;
      scale[m_.is_signed ? 1 : 0](numbers, {n, range.first, length, scratch->zero, scratch->scale}, y);
    } else {
      m_.is_signed ? Scale(reinterpret_cast<const int8_t*>(numbers), range, *scratch, y)
                   : Scale(numbers, range, *scratch, y);
    }
  }

 private:
  struct NumberRange {
    int64_t n, first, length;
  };

  void LoadScales(const Operands& in, int64_t block_row, int64_t column, int64_t n, Scratch* scratch) const {
    if (scratch->block_row == block_row && scratch->column == column && scratch->n == n) return;
    scratch->block_row = block_row;
    scratch->column = column;
    scratch->n = n;
    const int64_t first = column / m_.block_columns, count = (column + n - 1) / m_.block_columns + 1 - first;
    ReadFloats(in.scale, scale_, block_row * m_.scale_columns() + first, count, scratch->scale);
    if (!has_zero_) {
      std::fill_n(scratch->zero, count, static_cast<T>(m_.zero));
    } else if (IsFloat(zero_)) {
      ReadFloats(in.zero, zero_, block_row * m_.scale_columns() + first, count, scratch->zero);
    } else {
      const auto* bytes = static_cast<const uint8_t*>(in.zero) + block_row * m_.zero_row_bytes();
      for (int64_t i = 0; i < count; ++i) scratch->zero[i] = ReadZero(bytes, first + i);
    }
  }

  T ReadZero(const uint8_t* row, int64_t i) const {
    const int64_t per_byte = 8 / m_.zero_bits;
    const uint8_t byte = row[i / per_byte];
    if (m_.zero_bits == 8) return signed_zero_ ? static_cast<T>(static_cast<int8_t>(byte)) : static_cast<T>(byte);
    return static_cast<T>(byte >> (i % per_byte * m_.zero_bits) & ((1 << m_.zero_bits) - 1));
  }

  void Unpack(const uint8_t* packed, int64_t bits, int64_t n, uint8_t* numbers) const {
    if (bits == 4) return simd_.unpack_nibbles(packed, n, numbers);
    for (int64_t i = 0; i < n; ++i) numbers[i] = packed[i / 4] >> (i % 4 * 2) & 3;
  }

  template <typename Number>
  static void Scale(const Number* numbers, const NumberRange& r, const Scratch& scratch, T* y) {
    int64_t i = 0;
    for (int64_t b = 0, end = std::min(r.first, r.n); i < r.n; ++b, end = std::min(end + r.length, r.n)) {
      for (; i < end; ++i) y[i] = (static_cast<T>(numbers[i]) - scratch.zero[b]) * scratch.scale[b];
    }
  }

  const DequantizeSimd& simd_ = Simd();
  QuantizedMatrix m_;
  DType scale_, zero_ = DType::kUInt8;
  bool has_zero_, signed_zero_ = false;
};

template <typename T>
absl::StatusOr<RowReader<T>> MakeReader(const KernelContext& c, size_t first) {
  const Type* zero = c.has(first + 2) ? &c.in(first + 2) : nullptr;
  ASSIGN_OR_RETURN(const QuantizedMatrix m, ReadQuantizedMatrix(c.attrs(), c.in(first), c.in(first + 1), zero));
  return RowReader<T>(m, c.in(first + 1).dtype, zero);
}

template <typename T>
typename RowReader<T>::Operands TakeOperands(const Args& args, size_t first, bool has_zero) {
  return {args.in<uint8_t>(first), args.in<void>(first + 1), has_zero ? args.in<void>(first + 2) : nullptr};
}

template <typename T>
absl::StatusOr<Kernel> MakeDequantize(const KernelContext& c) {
  ASSIGN_OR_RETURN(const RowReader<T> reader, MakeReader<T>(c, 0));
  const int64_t rows = reader.matrix().rows, columns = reader.matrix().columns;
  const size_t each = RowReader<T>::ScratchBytes(columns);
  return Kernel{.run =
                    [=, has_zero = c.has(2)](const Args& args) {
                      const auto in = TakeOperands<T>(args, 0, has_zero);
                      Parallel(rows, columns, [&](int64_t begin, int64_t end) {
                        auto* memory = static_cast<std::byte*>(args.workspace) + omp_get_thread_num() * each;
                        auto scratch = RowReader<T>::MakeScratch(memory, columns);
                        for (int64_t row = begin; row < end; ++row)
                          reader.Read(in, row, 0, columns, &scratch, args.out<T>() + row * columns);
                      });
                    },
                .workspace = each * omp_get_max_threads()};
}

// A product y [m, n] = x [m, k]·W or x·Wᵀ. An item is a group of columns of y, which one thread computes. Sums are cut
// at the same elements whatever the number of threads.
class DequantizedProduct {
 public:
  DequantizedProduct(RowReader<float> reader, int64_t m, bool transposed, bool has_zero)
      : reader_(std::move(reader)), m_(m), transposed_(transposed), has_zero_(has_zero) {
    const QuantizedMatrix& w = reader_.matrix();
    k_ = transposed ? w.columns : w.rows;
    n_ = transposed ? w.rows : w.columns;
    const int64_t step = transposed ? kDotColumns : kPanelColumns, most = transposed ? kDotGroup : kSumGroup;
    const int64_t even = n_ / (kItemsPerThread * omp_get_max_threads());
    group_ = std::clamp(RoundUp(even, step), step, most);
    depth_ = transposed ? kDotDepth : kSumDepth;
    segment_ = transposed ? std::min(depth_, k_) : group_;
    tile_step_ = RoundUp(segment_, kPadding) + kPadding;
  }

  size_t workspace() const { return Each() * omp_get_max_threads(); }

  void Run(const Args& args) const {
    const auto in = TakeOperands<float>(args, 1, has_zero_);
    Parallel((n_ + group_ - 1) / group_, group_ * k_ * m_, [&](int64_t begin, int64_t end) {
      auto* memory = static_cast<std::byte*>(args.workspace) + omp_get_thread_num() * Each();
      for (int64_t g = begin; g < end; ++g)
        transposed_ ? MultiplyRows(args, in, g * group_, memory) : MultiplyColumns(args, in, g * group_, memory);
    });
  }

 private:
  using Reader = RowReader<float>;

  // Tiles of 256 KiB at most. Padding keeps rows of a tile out of the same sets of the cache.
  static constexpr int64_t kDotDepth = 1024, kDotGroup = 64, kSumDepth = 128, kSumGroup = 512, kPadding = 16;
  static constexpr int64_t kItemsPerThread = 2;

  int64_t TileFloats() const { return (transposed_ ? group_ : depth_) * tile_step_; }
  int64_t EdgeFloats() const { return transposed_ ? 0 : kMaxTileRows * kPanelColumns; }
  size_t Each() const {
    return Aligned64((TileFloats() + EdgeFloats()) * sizeof(float)) + Reader::ScratchBytes(segment_);
  }
  Reader::Scratch MakeScratch(std::byte* memory) const {
    return Reader::MakeScratch(memory + Aligned64((TileFloats() + EdgeFloats()) * sizeof(float)), segment_);
  }

  // y[:, first…] = x·W[first…, :]ᵀ.
  void MultiplyRows(const Args& args, const Reader::Operands& in, int64_t first, std::byte* memory) const {
    auto* tile = reinterpret_cast<float*>(memory);
    auto scratch = MakeScratch(memory);
    const int64_t columns = std::min(group_, n_ - first);
    for (int64_t k = 0; k < k_; k += depth_) {
      const int64_t depth = std::min(depth_, k_ - k);
      for (int64_t j = 0; j < columns; ++j) reader_.Read(in, first + j, k, depth, &scratch, tile + j * tile_step_);
      for (int64_t i = 0; i < m_; i += simd_.rows) {
        for (int64_t j = 0; j < columns; j += kDotColumns) {
          const int64_t rows = std::min<int64_t>(simd_.rows, m_ - i);
          simd_.dot[rows - 1]({.x = args.in() + i * k_ + k,
                               .w = tile + j * tile_step_,
                               .x_step = k_,
                               .w_step = tile_step_,
                               .depth = depth,
                               .y = args.out() + i * n_ + first + j,
                               .y_step = n_,
                               .columns = std::min<int64_t>(kDotColumns, columns - j),
                               .adds = k > 0});
        }
      }
    }
  }

  // y[:, first…] = x·W[:, first…].
  void MultiplyColumns(const Args& args, const Reader::Operands& in, int64_t first, std::byte* memory) const {
    auto* tile = reinterpret_cast<float*>(memory);
    auto scratch = MakeScratch(memory);
    const int64_t columns = std::min(group_, n_ - first);
    for (int64_t k = 0; k < k_; k += depth_) {
      const int64_t depth = std::min(depth_, k_ - k);
      for (int64_t i = 0; i < depth; ++i) reader_.Read(in, k + i, first, columns, &scratch, tile + i * tile_step_);
      for (int64_t j = 0; j < columns; j += kPanelColumns)
        MultiplyPanel(args, first + j, {k, depth}, tile + j, tile + TileFloats());
    }
  }

  struct Range {
    int64_t begin, count;
  };

  void MultiplyPanel(const Args& args, int64_t column, Range k, const float* panel, float* edge) const {
    const int64_t columns = std::min(kPanelColumns, n_ - column);
    const bool whole = columns == kPanelColumns;
    for (int64_t i = 0; i < m_; i += simd_.rows) {
      const int64_t rows = std::min<int64_t>(simd_.rows, m_ - i);
      float* y = args.out() + i * n_ + column;
      simd_.sum[rows - 1]({.x = args.in() + i * k_ + k.begin,
                           .w = panel,
                           .x_step = k_,
                           .w_step = tile_step_,
                           .depth = k.count,
                           .y = whole ? y : edge,
                           .y_step = whole ? n_ : kPanelColumns,
                           .columns = kPanelColumns,
                           .adds = whole && k.begin > 0});
      if (!whole) StoreEdge(edge, rows, columns, k.begin > 0, y);
    }
  }

  void StoreEdge(const float* edge, int64_t rows, int64_t columns, bool adds, float* y) const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) y[i * n_ + j] = edge[i * kPanelColumns + j] + (adds ? y[i * n_ + j] : 0.0f);
    }
  }

  const DequantizeSimd& simd_ = Simd();
  Reader reader_;
  int64_t m_, k_ = 0, n_ = 0;
  int64_t group_ = 0, depth_ = 0;        // columns of y of an item, elements of a sum that a tile covers
  int64_t segment_ = 0, tile_step_ = 0;  // elements of a row that are dequantized at once
  bool transposed_, has_zero_;
};

}  // namespace

absl::StatusOr<Kernel> PrepareDequantize(const KernelContext& c) {
  return c.out().dtype == DType::kFloat64 ? MakeDequantize<double>(c) : MakeDequantize<float>(c);
}

bool AcceptsDequantize(const KernelContext& c) {
  return c.out().dtype == DType::kFloat32 || c.out().dtype == DType::kFloat64;
}

absl::StatusOr<Kernel> PrepareMatMulDequantized(const KernelContext& c) {
  const int64_t size = c.out().elements(), inner = c.in().shape.back();
  if (size == 0 || inner == 0) return Kernel{.run = [size](const Args& args) { std::fill_n(args.out(), size, 0.0f); }};
  ASSIGN_OR_RETURN(RowReader<float> reader, MakeReader<float>(c, 1));
  const DequantizedProduct product(std::move(reader), c.in().elements() / inner, c.attrs().Int("transposed") != 0,
                                   c.has(3));
  return Kernel{.run = [product](const Args& args) { product.Run(args); }, .workspace = product.workspace()};
}

bool AcceptsMatMulDequantized(const KernelContext& c) { return c.in().dtype == DType::kFloat32; }

}  // namespace onnxtrain::cpu
