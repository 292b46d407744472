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

// A row of integers of `bits` bits, the first one in the lowest bits of a byte.
struct PackedRow {
  int64_t bits;
  bool is_signed;

  int Get(const uint8_t* row, int64_t i) const {
    const uint8_t byte = row[i * bits / 8];
    if (bits == 8) return is_signed ? static_cast<int8_t>(byte) : byte;
    return byte >> Shift(i) & Mask();
  }
  void Set(uint8_t* row, int64_t i, int number) const {
    uint8_t& byte = row[i * bits / 8];
    byte = static_cast<uint8_t>(bits == 8 ? number : (byte & ~(Mask() << Shift(i))) | number << Shift(i));
  }

 private:
  int Mask() const { return (1 << bits) - 1; }
  int Shift(int64_t i) const { return static_cast<int>(i % (8 / bits) * bits); }
};

bool IsSigned(DType dtype) { return FindGrid(dtype)->low < 0; }
const uint8_t* Bytes(const HostTensor& tensor) { return reinterpret_cast<const uint8_t*>(tensor.bytes().data()); }
uint8_t* MutableBytes(HostTensor* tensor) { return reinterpret_cast<uint8_t*>(tensor->mutable_bytes().data()); }

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

// The encoding of one block: the number q stands for (q − zero)·scale.
struct Encoding {
  float scale = 0, zero = 0;
};

// Reads the tensors of a quantized matrix.
class BlockReader {
 public:
  explicit BlockReader(const StoredBlocks& blocks)
      : b_(blocks),
        m_(blocks.matrix),
        numbers_{m_.bits, IsSigned(b_.q.dtype())},
        packed_zeros_(b_.zero && !IsFloat(b_.zero->dtype())),
        zeros_{m_.zero_bits, packed_zeros_ && IsSigned(b_.zero->dtype())} {}

  int Number(int64_t row, int64_t column) const { return numbers_.Get(Bytes(b_.q) + row * m_.row_bytes, column); }
  // Returns the encoding of the block in row r and column c of the blocks.
  Encoding Get(int64_t r, int64_t c) const {
    const int64_t at = r * m_.scale_columns() + c;
    return {static_cast<float>(b_.scale.At(at)), Zero(r, c)};
  }
  float Zero(int64_t r, int64_t c) const {
    if (!b_.zero) return static_cast<float>(m_.zero);
    if (!packed_zeros_) return static_cast<float>(b_.zero->At(r * m_.scale_columns() + c));
    return static_cast<float>(zeros_.Get(Bytes(*b_.zero) + r * m_.zero_row_bytes(), c));
  }
  float RealValue(int number, const Encoding& e) const {
    return (m_.nf4 ? kNf4[static_cast<size_t>(number)] : static_cast<float>(number) - e.zero) * e.scale;
  }

 protected:
  const StoredBlocks& b_;
  const QuantizedMatrix& m_;
  const PackedRow numbers_;
  const bool packed_zeros_;
  const PackedRow zeros_;
};

// Quantizes the rows of one row of blocks at a time.
class BlockQuantizer : private BlockReader {
 public:
  BlockQuantizer(bool keep_scales, StoredBlocks* blocks)
      : BlockReader(*blocks),
        keeps_(keep_scales),
        low_(m_.bits < 8 ? 0 : static_cast<float>(FindGrid(b_.q.dtype())->low)),
        high_(m_.bits < 8 ? static_cast<float>((1 << m_.bits) - 1) : static_cast<float>(FindGrid(b_.q.dtype())->high)),
        fixed_zero_(FindFixedZero()),
        blocks_(*blocks) {}

  absl::StatusOr<QuantizationError> Run(const ReadRows& read) {
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
    return total_;
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

  // Returns the zero point of all blocks if they have the same one.
  std::optional<float> FindFixedZero() const {
    if (!b_.zero) return static_cast<float>(m_.zero);
    if (!keeps_) return std::nullopt;
    const float first = Zero(0, 0);
    for (int64_t r = 0; r < m_.scale_rows(); ++r) {
      for (int64_t c = 0; c < m_.scale_columns(); ++c) {
        if (Zero(r, c) != first) return std::nullopt;
      }
    }
    return first;
  }

  // Returns the encoding that the tensors hold.
  Encoding Stored(const Block& block) const { return Get(block.row / m_.block_rows, block.column / m_.block_columns); }

  void Store(const Block& block, const Encoding& e) {
    const int64_t r = block.row / m_.block_rows, c = block.column / m_.block_columns, at = r * m_.scale_columns() + c;
    blocks_.scale.Set(at, e.scale);
    if (packed_zeros_) {
      zeros_.Set(MutableBytes(&*blocks_.zero) + r * m_.zero_row_bytes(), c, static_cast<int>(e.zero));
    } else if (b_.zero) {
      blocks_.zero->Set(at, e.zero);
    }
  }

  // Returns an encoding of the range. All ranges include 0.
  Encoding Fit(float low, float high) const {
    if (m_.nf4) return {.scale = std::max(high, -low)};
    if (fixed_zero_) return {.scale = FitScale(low, high, *fixed_zero_), .zero = *fixed_zero_};
    const float scale = (high - low) / (high_ - low_);
    const float zero = scale == 0 ? low_ : std::clamp(std::round(low_ - low / scale), low_, high_);
    return {.scale = scale, .zero = zero};
  }

  // Returns the scale of the smallest magnitude with which all numbers are within the grid. Few bits have one number
  // more below their zero point than above it, so that a negative scale may be smaller.
  float FitScale(float low, float high, float zero) const {
    const float below = std::max(zero - low_, 1.0f), above = std::max(high_ - zero, 1.0f);
    const float positive = std::max(high / above, -low / below), negative = std::max(high / below, -low / above);
    return m_.bits < 8 && negative < positive ? -negative : positive;
  }

  int FindNumber(float value, float inverse, const Encoding& e) const {
    if (m_.nf4) return FindNf4(value * inverse);
    return static_cast<int>(std::clamp(std::round(value * inverse + e.zero), low_, high_));
  }
  static float Inverse(const Encoding& e) { return e.scale == 0 ? 0 : 1 / e.scale; }

  double ErrorOf(const Block& block, const Encoding& e) const {
    const float inverse = Inverse(e);
    double error = 0;
    ForEach(block, [&](int64_t, int64_t, float value) {
      const double difference = RealValue(FindNumber(value, inverse, e), e) - value;
      error += difference * difference;
    });
    return error;
  }

  void Quantize(const Block& block) {
    float low = 0, high = 0;
    ForEach(block, [&](int64_t, int64_t, float value) {
      low = std::min(low, value);
      high = std::max(high, value);
    });
    const Encoding old = Stored(block);
    Store(block, Fit(low, high));
    Encoding e = Stored(block);  // rounded to the types of the tensors
    if (keeps_ && ErrorOf(block, old) <= ErrorOf(block, e)) Store(block, e = old);
    const float inverse = Inverse(e);
    uint8_t* const q = MutableBytes(&blocks_.q);
    ForEach(block, [&](int64_t row, int64_t column, float value) {
      const int number = FindNumber(value, inverse, e);
      numbers_.Set(q + row * m_.row_bytes, column, number);
      const double difference = RealValue(number, e) - value;
      total_.error += difference * difference;
      total_.matrix += static_cast<double>(value) * value;
    });
  }

  const bool keeps_;
  const float low_, high_;  // the grid of integers
  const std::optional<float> fixed_zero_;
  StoredBlocks& blocks_;
  std::vector<float> values_;
  QuantizationError total_;
};

}  // namespace

int64_t StoredBlocks::bytes() const {
  return static_cast<int64_t>(q.bytes().size() + scale.bytes().size() + (zero ? zero->bytes().size() : 0));
}

const BlockFormat* FindBlockFormat(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &BlockFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

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

double QuantizationError::relative() const { return matrix == 0 ? 0 : std::sqrt(error / matrix); }

absl::StatusOr<QuantizationError> QuantizeBlocks(const ReadRows& read, bool keep_scales, StoredBlocks* blocks) {
  return BlockQuantizer(keep_scales, blocks).Run(read);
}

void ReadBlocks(const StoredBlocks& blocks, int64_t row, int64_t count, std::span<float> out) {
  const BlockReader reader(blocks);
  const QuantizedMatrix& m = blocks.matrix;
  float* at = out.data();
  for (int64_t r = row; r < row + count; ++r) {
    for (int64_t begin = 0; begin < m.columns; begin += m.block_columns) {
      const Encoding e = reader.Get(r / m.block_rows, begin / m.block_columns);
      for (int64_t c = begin; c < std::min(begin + m.block_columns, m.columns); ++c)
        *at++ = reader.RealValue(reader.Number(r, c), e);
    }
  }
}

}  // namespace onnxtrain
