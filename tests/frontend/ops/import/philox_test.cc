#include "frontend/ops/random.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

// The known answers that the authors of the generator publish.
static_assert(Philox4x32({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
              PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST(Philox, KeyAndCounterAreDerivedAsDocumented) {
  const PhiloxKey key{.seed = 7, .step = 11, .micro = 13, .piece = 17};
  const uint64_t element = (uint64_t{5} << 34) + 4 * 3 + 2;  // block = 5·2^32 + 3, word 2
  const uint32_t s = 19;
  const PhiloxBlock block = Philox4x32({3, 5, 11, 13}, {7 + 0x9E3779B9u * s, s * 0x85EBCA6Bu});
  EXPECT_EQ(RandomWord(key, s, element), block[2]);
}

TEST(Philox, PiecesContinueEachOther) {
  EXPECT_EQ(MakePiece(0, 32), 0u);
  for (const auto& [skipped, count] : {std::pair(32, 32), {48, 16}, {7, 5}, {65535, 1}, {1, 65535}, {131072, 65536}}) {
    const uint64_t per_sample = 12;
    EXPECT_EQ(FirstElement(MakePiece(skipped, count), count * per_sample), skipped * per_sample) << skipped;
  }
  EXPECT_LE(FirstElement(MakePiece(100003, 100019), 100019), 100003u);
}

TEST(Philox, UniformIsBelowOne) {
  EXPECT_EQ(WordToUniform(0), 0.0f);
  EXPECT_EQ(WordToUniform(~0u), 1.0f - 0x1p-24f);
}

TEST(Philox, NormalsHaveMeanZeroAndVarianceOne) {
  const PhiloxKey key{.seed = 1};
  double sum = 0, squares = 0;
  const int blocks = 50000;
  for (int i = 0; i < blocks; ++i) {
    const PhiloxBlock w = RandomBlock(key, 3, i);
    for (int j = 0; j < 4; j += 2) {
      for (double z : BoxMuller(w[j], w[j + 1])) sum += z, squares += z * z;
    }
  }
  const double n = 4.0 * blocks;
  EXPECT_NEAR(sum / n, 0.0, 0.01);  // standard error 0.0022
  EXPECT_NEAR(squares / n, 1.0, 0.015);
}

}  // namespace
}  // namespace onnxtrain
