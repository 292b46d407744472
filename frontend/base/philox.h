// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). All
// functions are pure, so any thread can draw any element in any order.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace onnxtrain {

using PhiloxBlock = std::array<uint32_t, 4>;

// Applies the block function: ten rounds.
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Maps a word to [0, 1), a multiple of 2^-24: exact in float.
constexpr float WordToUniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Returns two independent standard normals (Box and Muller, 1958). Elements 2j and 2j+1 of a block are [0] and [1].
inline std::array<double, 2> BoxMuller(uint32_t word1, uint32_t word2) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const double r = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(WordToUniform(word1))));
  const double angle = kTwoPi * static_cast<double>(WordToUniform(word2));
  return {r * std::cos(angle), r * std::sin(angle)};
}

}  // namespace onnxtrain
