// Blocks of quantized weights: their numbers are those of the documented formulas.
#include "frontend/ops/quantize_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr int64_t kRows = 70, kColumns = 67;

std::vector<float> Weights() {
  std::vector<float> w(kRows * kColumns);
  for (size_t i = 0; i < w.size(); ++i) {
    const auto draw = static_cast<uint32_t>(i + 1) * 2654435761u;
    w[i] = static_cast<float>(draw >> 8) / (1 << 24) - 0.4f;
    w[i] *= std::abs(w[i]);
  }
  return w;
}

ReadRows RowsOf(const std::vector<float>& w) {
  return [&w](int64_t row, int64_t count, std::span<float> out) {
    std::copy_n(w.begin() + row * kColumns, count * kColumns, out.begin());
  };
}

// Returns the floats that the operator computes.
std::vector<float> RealValues(const StoredBlocks& blocks) {
  Attrs attrs = blocks.matrix.ToAttrs();
  attrs.Set("dtype", std::string("f32"));
  std::vector<const HostTensor*> inputs = {&blocks.q, &blocks.scale};
  if (blocks.zero) inputs.push_back(&*blocks.zero);
  const std::vector<Type> types = {{DType::kFloat32, {kRows, kColumns}}};
  const HostTensor y = FindOp("Dequantize")->evaluate({attrs, inputs, types})[0];
  return {y.data<float>().begin(), y.data<float>().end()};
}

StoredBlocks Quantize(const std::vector<float>& w, std::string_view format, bool outputs_first) {
  const auto blocks = QuantizeBlocks(*FindBlockFormat(format), kRows, kColumns, outputs_first, RowsOf(w));
  EXPECT_TRUE(blocks.ok()) << blocks.status();
  const std::vector<float> real = RealValues(*blocks);
  double difference = 0, squares = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    difference += std::pow(static_cast<double>(real[i]) - w[i], 2);
    squares += static_cast<double>(w[i]) * w[i];
  }
  EXPECT_NEAR(blocks->error, std::sqrt(difference / squares), 1e-9);
  return *blocks;
}

// Calls check(block, real values) with the elements of each block along the inputs.
template <typename Check>
void ForEachBlock(std::string_view format, int64_t length, Check check) {
  const std::vector<float> w = Weights();
  for (const bool outputs_first : {false, true}) {
    const std::vector<float> real = RealValues(Quantize(w, format, outputs_first));
    const int64_t outputs = outputs_first ? kRows : kColumns, inputs = outputs_first ? kColumns : kRows;
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t begin = 0; begin < inputs; begin += length) {
        std::vector<float> block, values;
        for (int64_t i = begin; i < std::min(begin + length, inputs); ++i) {
          const int64_t at = outputs_first ? o * kColumns + i : i * kColumns + o;
          block.push_back(w[at]);
          values.push_back(real[at]);
        }
        check(block, values);
      }
    }
  }
}

TEST(QuantizeBlocks, Int4HasScaleAndZeroPointOfTheRange) {
  ForEachBlock("int4", 32, [](const std::vector<float>& w, const std::vector<float>& real) {
    const float low = std::min(0.0f, std::ranges::min(w)), high = std::max(0.0f, std::ranges::max(w));
    const float scale = (high - low) / 15, zero = std::round(-low / scale);
    for (size_t i = 0; i < w.size(); ++i) {
      const float q = std::clamp(std::round(w[i] * (1 / scale) + zero), 0.0f, 15.0f);
      ASSERT_EQ(real[i], (q - zero) * scale);
    }
  });
}

TEST(QuantizeBlocks, Int8HasOneScaleForEachOutput) {
  ForEachBlock("int8", kRows, [](const std::vector<float>& w, const std::vector<float>& real) {
    const float scale = std::max(std::ranges::max(w) / 127, std::ranges::min(w) / -128);
    for (size_t i = 0; i < w.size(); ++i) {
      const float q = std::clamp(std::round(w[i] * (1 / scale)), -128.0f, 127.0f);
      ASSERT_EQ(real[i], q * scale);
    }
  });
}

TEST(QuantizeBlocks, Nf4TakesTheNearestValue) {
  ForEachBlock("nf4", 64, [](const std::vector<float>& w, const std::vector<float>& real) {
    float scale = 0;
    for (const float v : w) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < w.size(); ++i) {
      float nearest = kNf4[0];
      for (const float v : kNf4) {
        if (std::abs(w[i] / scale - v) < std::abs(w[i] / scale - nearest)) nearest = v;
      }
      ASSERT_EQ(real[i], nearest * scale);
    }
  });
}

// Values that blocks represent keep their numbers.
TEST(QuantizeBlocks, ValuesOfBlocksStay) {
  for (const char* format : {"int4", "int8", "nf4"}) {
    const StoredBlocks blocks = Quantize(Weights(), format, true);
    EXPECT_GT(blocks.error, 0) << format;
    const StoredBlocks again = Quantize(RealValues(blocks), format, true);
    EXPECT_TRUE(again.q.SameBytes(blocks.q)) << format;
    EXPECT_LT(again.error, 1e-6) << format;
  }
}

StoredBlocks Copy(const StoredBlocks& blocks) {
  StoredBlocks copy = blocks;
  copy.q = blocks.q.Clone();
  copy.scale = blocks.scale.Clone();
  if (blocks.zero) copy.zero = blocks.zero->Clone();
  return copy;
}

bool SameBytes(const StoredBlocks& a, const StoredBlocks& b) {
  return a.q.SameBytes(b.q) && a.scale.SameBytes(b.scale) && (!a.zero || a.zero->SameBytes(*b.zero));
}

TEST(ReadBlocks, EqualsTheOperator) {
  for (const char* format : {"int4", "int8", "nf4"}) {
    for (const bool outputs_first : {false, true}) {
      const StoredBlocks blocks = Quantize(Weights(), format, outputs_first);
      const std::vector<float> real = RealValues(blocks);
      std::vector<float> rows(20 * kColumns);
      ReadBlocks(blocks, 33, 20, rows);
      EXPECT_TRUE(std::ranges::equal(rows, std::span(real).subspan(33 * kColumns, rows.size())));
    }
  }
}

TEST(RequantizeBlocks, LeavesBlocksThatHoldTheFloats) {
  for (const char* format : {"int4", "int8", "nf4"}) {
    StoredBlocks blocks = Quantize(Weights(), format, true);
    for (int64_t i = 0; i < blocks.scale.size(); i += 5) blocks.scale.Set(i, 0);  // with numbers that mean nothing
    StoredBlocks again = Copy(blocks);
    const std::vector<float> real = RealValues(blocks);
    ASSERT_TRUE(RequantizeBlocks(RowsOf(real), {}, &again).ok());
    EXPECT_EQ(again.error, 0) << format;
    EXPECT_TRUE(SameBytes(again, blocks)) << format;
  }
}

// A number that changes a little keeps the scale of its block; one that is out of the block's range changes it.
TEST(RequantizeBlocks, ChooseTheBetterScale) {
  const StoredBlocks blocks = Quantize(Weights(), "int4", true);
  std::vector<float> w = RealValues(blocks);
  w[0] += static_cast<float>(blocks.scale.At(0)) * 1.1f;
  for (int64_t i = 32; i < 64; ++i) w[i] *= 2;
  StoredBlocks sum = Copy(blocks);
  ASSERT_TRUE(RequantizeBlocks(RowsOf(w), {}, &sum).ok());
  EXPECT_EQ(sum.scale.At(0), blocks.scale.At(0));
  EXPECT_NEAR(sum.scale.At(1), 2 * blocks.scale.At(1), 1e-6);
  EXPECT_EQ(sum.scale.At(2), blocks.scale.At(2));
  StoredBlocks stays = Copy(blocks);
  ASSERT_TRUE(RequantizeBlocks(RowsOf(w), {.scale = false, .zero = false}, &stays).ok());
  EXPECT_TRUE(stays.scale.SameBytes(blocks.scale) && stays.zero->SameBytes(*blocks.zero));
  EXPECT_GT(stays.error, 2 * sum.error);
}

// Symmetric quantizers store the same zero point for all blocks, and programs may rely on it.
TEST(RequantizeBlocks, KeepAZeroPointThatAllBlocksShare) {
  StoredBlocks blocks = Quantize(Weights(), "int4", true);
  for (int64_t i = 0; i < blocks.zero->size(); ++i) blocks.zero->Set(i, 0x88);
  StoredBlocks sum = Copy(blocks);
  ASSERT_TRUE(RequantizeBlocks(RowsOf(Weights()), {}, &sum).ok());
  EXPECT_TRUE(sum.zero->SameBytes(*blocks.zero));
  EXPECT_FALSE(sum.scale.SameBytes(blocks.scale));
  EXPECT_LT(sum.error, 0.2);
}

TEST(QuantizeBlocks, RefuseNumbersThatAreNotFinite) {
  std::vector<float> w = Weights();
  w[5] = NAN;
  const auto blocks = QuantizeBlocks(*FindBlockFormat("nf4"), kRows, kColumns, true, RowsOf(w));
  EXPECT_EQ(blocks.status().message(), "has numbers that are not finite");
}

}  // namespace
}  // namespace onnxtrain
