#include "frontend/ops/quantize_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "frontend/base/status.h"

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

// Writes the number at `i` of a row of `bits` bits each, the first one in the lowest bits of a byte. The row is zeroed.
void PutNumber(HostTensor* rows, int64_t row_begin, int64_t bits, int64_t i, int number) {
  auto* const bytes = reinterpret_cast<uint8_t*>(rows->mutable_bytes().data()) + row_begin;
  const int mask = (1 << bits) - 1;
  bytes[i * bits / 8] |= static_cast<uint8_t>((number & mask) << (i % (8 / bits) * bits));
}

// The encoding of one block: the number q stands for (q − zero)·scale.
struct Encoding {
  float scale = 0, zero = 0;
};

// Quantizes the rows of one row of blocks at a time.
class BlockQuantizer {
 public:
  explicit BlockQuantizer(StoredBlocks* blocks)
      : m_(blocks->matrix),
        low_(m_.is_signed ? -static_cast<float>(1 << (m_.bits - 1)) : 0),
        high_(low_ + static_cast<float>((1 << m_.bits) - 1)),
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

  // Returns the encoding of a range that includes 0.
  Encoding Fit(float low, float high) const {
    if (m_.nf4) return {.scale = std::max(high, -low)};
    if (!blocks_.zero) return {.scale = std::max(high / high_, low / low_)};
    const float scale = (high - low) / (high_ - low_);
    return {.scale = scale, .zero = scale == 0 ? low_ : std::clamp(std::round(low_ - low / scale), low_, high_)};
  }

  void Store(const Block& block, const Encoding& e) {
    const int64_t r = block.row / m_.block_rows, c = block.column / m_.block_columns;
    blocks_.scale.Set(r * m_.scale_columns() + c, e.scale);
    if (blocks_.zero) PutNumber(&*blocks_.zero, r * m_.zero_row_bytes(), m_.zero_bits, c, static_cast<int>(e.zero));
  }

  int FindNumber(float scaled, const Encoding& e) const {
    return m_.nf4 ? FindNf4(scaled) : static_cast<int>(std::clamp(std::round(scaled + e.zero), low_, high_));
  }
  float RealValue(int number, const Encoding& e) const {
    return (m_.nf4 ? kNf4[static_cast<size_t>(number)] : static_cast<float>(number) - e.zero) * e.scale;
  }

  void Quantize(const Block& block) {
    float low = 0, high = 0;
    ForEach(block, [&](int64_t, int64_t, float value) {
      low = std::min(low, value);
      high = std::max(high, value);
    });
    const Encoding e = Fit(low, high);
    Store(block, e);
    const float inverse = e.scale == 0 ? 0 : 1 / e.scale;
    ForEach(block, [&](int64_t row, int64_t column, float value) {
      const int number = FindNumber(value * inverse, e);
      PutNumber(&blocks_.q, row * m_.row_bytes, m_.bits, column, number);
      const double difference = RealValue(number, e) - value;
      error_ += difference * difference;
      squares_ += static_cast<double>(value) * value;
    });
  }

  const QuantizedMatrix& m_;
  const float low_, high_;  // the grid of integers
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
  RETURN_IF_ERROR(BlockQuantizer(&blocks).Run(read));
  return blocks;
}

}  // namespace onnxtrain
