#include "frontend/ops/quantize_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

constexpr BlockFormat kFormats[] = {
    {.name = "int4", .bits = 4, .inputs = 32, .is_signed = false, .has_zero = true, .nf4 = false},
    {.name = "int8", .bits = 8, .inputs = 0, .is_signed = true, .has_zero = false, .nf4 = false},
    {.name = "nf4", .bits = 4, .inputs = 64, .is_signed = false, .has_zero = false, .nf4 = true},
};

// Returns the number of midpoints between the values of kNf4 that are below x: the index of the nearest value.
int FindNf4(float x) {
  static constexpr std::array kMidpoints = [] {
    std::array<float, kNf4.size() - 1> midpoints{};
    for (size_t i = 0; i < midpoints.size(); ++i) midpoints[i] = (kNf4[i] + kNf4[i + 1]) / 2;
    return midpoints;
  }();
  int index = 0;
  for (int step = 8; step > 0; step /= 2) index += x > kMidpoints[index + step - 1] ? step : 0;
  return index;
}

uint8_t* MutableBytes(HostTensor* tensor) { return reinterpret_cast<uint8_t*>(tensor->mutable_bytes().data()); }

// A row of integers of `bits` bits, the first one in the lowest bits of a byte.
struct PackedRow {
  int64_t bits;
  bool is_signed;

  int Get(const uint8_t* row, int64_t i) const {
    const uint8_t byte = row[i * bits / 8];
    return bits < 8 ? byte >> Shift(i) & Mask() : is_signed ? static_cast<int8_t>(byte) : byte;
  }
  void Set(uint8_t* row, int64_t i, int number) const {
    uint8_t& byte = row[i * bits / 8];
    byte = static_cast<uint8_t>((byte & ~(Mask() << Shift(i))) | (number & Mask()) << Shift(i));
  }

 private:
  int Mask() const { return (1 << bits) - 1; }
  int Shift(int64_t i) const { return static_cast<int>(i % (8 / bits) * bits); }
};

// The encoding of one block: the number q stands for (q − zero)·scale.
struct Encoding {
  float scale = 0, zero = 0;
};

// Reads the tensors of a quantized matrix of integers.
class BlockReader {
 public:
  explicit BlockReader(const StoredBlocks& blocks)
      : b_(blocks),
        m_(blocks.matrix),
        q_(reinterpret_cast<const uint8_t*>(b_.q.bytes().data())),
        numbers_{m_.bits, IsSigned(b_.q)},
        packed_zeros_(b_.zero && !IsFloat(b_.zero->dtype())),
        zeros_{m_.zero_bits, packed_zeros_ && IsSigned(*b_.zero)} {}

  float Read(int64_t row, int64_t column, const Encoding& e) const {
    return RealValue(numbers_.Get(q_ + row * m_.row_bytes, column), e);
  }
  // Returns the encoding of the block in row r and column c of the blocks.
  Encoding Get(int64_t r, int64_t c) const {
    const int64_t at = r * m_.scale_columns() + c;
    Encoding e{.scale = static_cast<float>(b_.scale.At(at)), .zero = static_cast<float>(m_.zero)};
    if (packed_zeros_) {
      const auto* zeros = reinterpret_cast<const uint8_t*>(b_.zero->bytes().data());
      e.zero = static_cast<float>(zeros_.Get(zeros + r * m_.zero_row_bytes(), c));
    } else if (b_.zero) {
      e.zero = static_cast<float>(b_.zero->At(at));
    }
    return e;
  }

 protected:
  static bool IsSigned(const HostTensor& integers) { return FindGrid(integers.dtype())->low < 0; }
  float RealValue(int number, const Encoding& e) const {
    return (m_.nf4 ? kNf4[static_cast<size_t>(number)] : static_cast<float>(number) - e.zero) * e.scale;
  }

  const StoredBlocks& b_;
  const QuantizedMatrix& m_;
  const uint8_t* const q_;
  const PackedRow numbers_;
  const bool packed_zeros_;
  const PackedRow zeros_;
};

// Quantizes the rows of one row of blocks at a time.
class BlockQuantizer : private BlockReader {
 public:
  // With `has_old`, the tensors hold blocks whose encodings may stay.
  BlockQuantizer(bool has_old, FreeEncodings free, StoredBlocks* blocks)
      : BlockReader(*blocks),
        has_old_(has_old),
        free_scales_(free.scale),
        low_(m_.bits < 8 ? 0 : static_cast<float>(FindGrid(b_.q.dtype())->low)),
        high_(m_.bits < 8 ? static_cast<float>((1 << m_.bits) - 1) : static_cast<float>(FindGrid(b_.q.dtype())->high)),
        free_zeros_(free.zero && b_.zero && !(has_old_ && SharesZero())),
        blocks_(*blocks) {}

  absl::Status Run(const ReadRows& read) {
    values_.resize(static_cast<size_t>(m_.block_rows * m_.columns));
    for (int64_t row = 0; row < m_.rows; row += m_.block_rows) {
      const int64_t count = std::min(m_.block_rows, m_.rows - row);
      const std::span<float> values(values_.data(), static_cast<size_t>(count * m_.columns));
      read(row, count, values);
      if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
        return Invalid("has numbers that are not finite");
      for (int64_t column = 0; column < m_.columns; column += m_.block_columns)
        Quantize({row, column, count, std::min(m_.block_columns, m_.columns - column)});
    }
    blocks_.error = squares_ == 0 ? 0 : std::sqrt(error_ / squares_);
    return absl::OkStatus();
  }

 private:
  struct Block {
    int64_t row, column, rows, columns;
  };

  // Calls visit(row, column, value) for the elements of a block.
  template <typename Visit>
  void ForEach(const Block& block, Visit visit) const {
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int64_t j = 0; j < block.columns; ++j)
        visit(block.row + i, block.column + j, values_[static_cast<size_t>(i * m_.columns + block.column + j)]);
    }
  }

  // Returns the sum of the squared differences between the floats and real(row, column, value).
  template <typename Real>
  double ErrorOf(const Block& block, Real real) const {
    double error = 0;
    ForEach(block, [&](int64_t row, int64_t column, float value) {
      const double difference = real(row, column, value) - value;
      error += difference * difference;
    });
    return error;
  }

  bool SharesZero() const {
    const float first = Get(0, 0).zero;
    for (int64_t i = 0; i < m_.scale_rows() * m_.scale_columns(); ++i) {
      if (Get(i / m_.scale_columns(), i % m_.scale_columns()).zero != first) return false;
    }
    return true;
  }

  // Returns the encoding of a range that includes 0.
  Encoding Fit(float low, float high, float old_zero) const {
    if (m_.nf4) return {.scale = std::max(high, -low)};
    if (!free_zeros_) return {.scale = FitScale(low, high, old_zero), .zero = old_zero};
    const float scale = (high - low) / (high_ - low_);
    return {.scale = scale, .zero = scale == 0 ? low_ : std::clamp(std::round(low_ - low / scale), low_, high_)};
  }

  // Returns the scale of the smallest magnitude with which the range is within the grid. A grid of few bits has more
  // numbers below its zero point than above it, so that a negative scale may be smaller.
  float FitScale(float low, float high, float zero) const {
    const auto divide = [](float extent, float steps) { return steps > 0 ? extent / steps : 0; };
    const float below = zero - low_, above = high_ - zero;
    const float positive = std::max(divide(high, above), divide(-low, below));
    const float negative = std::max(divide(high, below), divide(-low, above));
    return m_.bits < 8 && negative < positive ? -negative : positive;
  }

  void Store(int64_t r, int64_t c, const Encoding& e) {
    const int64_t at = r * m_.scale_columns() + c;
    blocks_.scale.Set(at, e.scale);
    if (!free_zeros_) return;
    if (packed_zeros_) {
      zeros_.Set(MutableBytes(&*blocks_.zero) + r * m_.zero_row_bytes(), c, static_cast<int>(e.zero));
    } else {
      blocks_.zero->Set(at, e.zero);
    }
  }

  int FindNumber(float value, float inverse, const Encoding& e) const {
    const float scaled = value * inverse;
    return m_.nf4 ? FindNf4(scaled) : static_cast<int>(std::clamp(std::round(scaled + e.zero), low_, high_));
  }
  static float Inverse(const Encoding& e) { return e.scale == 0 ? 0 : 1 / e.scale; }

  // Stores the encoding of the block and returns it as its tensors round it.
  Encoding Choose(const Block& block) {
    const int64_t r = block.row / m_.block_rows, c = block.column / m_.block_columns;
    float low = 0, high = 0;
    ForEach(block, [&](int64_t, int64_t, float value) {
      low = std::min(low, value);
      high = std::max(high, value);
    });
    const Encoding old = Get(r, c);
    if (!free_scales_) return old;
    Store(r, c, Fit(low, high, old.zero));
    const Encoding fitted = Get(r, c);
    const auto error = [&](const Encoding& e) {
      const float inverse = Inverse(e);
      return ErrorOf(block, [&](int64_t, int64_t, float value) { return RealValue(FindNumber(value, inverse, e), e); });
    };
    if (!has_old_ || error(fitted) < error(old)) return fitted;
    Store(r, c, old);
    return old;
  }

  bool Holds(const Block& block) const {
    const Encoding e = Get(block.row / m_.block_rows, block.column / m_.block_columns);
    return ErrorOf(block, [&](int64_t row, int64_t column, float) { return Read(row, column, e); }) == 0;
  }

  void Quantize(const Block& block) {
    ForEach(block, [&](int64_t, int64_t, float value) { squares_ += static_cast<double>(value) * value; });
    if (has_old_ && Holds(block)) return;
    const Encoding e = Choose(block);
    const float inverse = Inverse(e);
    uint8_t* const q = MutableBytes(&blocks_.q);
    error_ += ErrorOf(block, [&](int64_t row, int64_t column, float value) {
      const int number = FindNumber(value, inverse, e);
      numbers_.Set(q + row * m_.row_bytes, column, number);
      return RealValue(number, e);
    });
  }

  const bool has_old_, free_scales_;
  const float low_, high_;  // the grid of integers
  const bool free_zeros_;
  StoredBlocks& blocks_;
  std::vector<float> values_;
  double error_ = 0, squares_ = 0;
};

// Returns zeroed blocks.
StoredBlocks MakeBlocks(const BlockFormat& format, int64_t rows, int64_t columns, bool outputs_first) {
  const int64_t inputs = outputs_first ? columns : rows, block = format.inputs == 0 ? inputs : format.inputs;
  StoredBlocks blocks{.matrix = {.rows = rows,
                                 .columns = columns,
                                 .row_bytes = (columns * format.bits + 7) / 8,
                                 .bits = format.bits,
                                 .is_signed = format.is_signed,
                                 .block_rows = outputs_first ? 1 : std::min(block, rows),
                                 .block_columns = outputs_first ? std::min(block, columns) : 1,
                                 .zero_bits = format.bits,
                                 .nf4 = format.nf4}};
  const QuantizedMatrix& m = blocks.matrix;
  blocks.q = HostTensor({format.is_signed ? DType::kInt8 : DType::kUInt8, {rows, m.row_bytes}});
  blocks.scale = HostTensor({DType::kFloat32, {m.scale_rows(), m.scale_columns()}});
  if (format.has_zero) blocks.zero = HostTensor({DType::kUInt8, {m.scale_rows(), m.zero_row_bytes()}});
  return blocks;
}
}  // namespace

int64_t StoredBlocks::bytes() const {
  return static_cast<int64_t>(q.bytes().size() + scale.bytes().size() + (zero ? zero->bytes().size() : 0));
}

const BlockFormat* FindBlockFormat(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &BlockFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

absl::StatusOr<StoredBlocks> QuantizeBlocks(const BlockFormat& format, int64_t rows, int64_t columns,
                                            bool outputs_first, const ReadRows& read) {
  StoredBlocks blocks = MakeBlocks(format, rows, columns, outputs_first);
  RETURN_IF_ERROR(BlockQuantizer(false, {}, &blocks).Run(read));
  return blocks;
}

absl::Status RequantizeBlocks(const ReadRows& read, FreeEncodings free, StoredBlocks* blocks) {
  return BlockQuantizer(true, free, blocks).Run(read);
}

void ReadBlocks(const StoredBlocks& blocks, int64_t row, int64_t count, std::span<float> out) {
  const BlockReader reader(blocks);
  const QuantizedMatrix& m = blocks.matrix;
  float* at = out.data();
  for (int64_t r = row; r < row + count; ++r) {
    for (int64_t begin = 0; begin < m.columns; begin += m.block_columns) {
      const Encoding e = reader.Get(r / m.block_rows, begin / m.block_columns);
      for (int64_t c = begin; c < std::min(begin + m.block_columns, m.columns); ++c) *at++ = reader.Read(r, c, e);
    }
  }
}

}  // namespace onnxtrain
