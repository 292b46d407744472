// Random numbers of all random operators: Philox4x32-10 (frontend/base/philox.h), with key and counter derived as in
// README.md. All functions are pure, so recomputation yields the same numbers, and elements can be computed in any
// order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "frontend/base/philox.h"

namespace onnxtrain {

// The key input of a random operator, u32[4], in this order.
struct PhiloxKey {
  uint32_t seed = 0, step = 0, micro = 0, piece = 0;

  // Reads the four words of the key input.
  static constexpr PhiloxKey From(const uint32_t* words) { return {words[0], words[1], words[2], words[3]}; }
};

// Several ranks may compute pieces of one micro-batch. The key word `piece` encodes a fraction p/q: p in the upper
// half, q ≥ 1 in the lower half. Returns elements·p/q, the number of elements before a piece of `elements` elements.
constexpr uint64_t FirstElement(uint32_t piece, uint64_t elements) {
  return elements * (piece >> 16) / std::max<uint32_t>(1, piece & 0xFFFF);
}

// Returns the key word of a piece of `count` samples that follows `skipped` samples. Rounds a fraction that does not
// fit down.
constexpr uint32_t MakePiece(int64_t skipped, int64_t count) {
  const int64_t divisor = std::gcd(skipped, count);
  if (divisor > 1) skipped /= divisor, count /= divisor;
  while (skipped > 0xFFFF || count > 0xFFFF) skipped /= 2, count = (count + 1) / 2;
  return skipped == 0 ? 0 : static_cast<uint32_t>(skipped << 16 | count);
}

// Returns the words of elements 4·block … 4·block+3 of the operator with this stream attribute.
constexpr PhiloxBlock RandomBlock(const PhiloxKey& key, int64_t stream, uint64_t block) {
  const auto s = static_cast<uint32_t>(stream);
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), key.step, key.micro},
                    {key.seed + 0x9E3779B9u * s, s * 0x85EBCA6Bu});
}

constexpr uint32_t RandomWord(const PhiloxKey& key, int64_t stream, uint64_t element) {
  return RandomBlock(key, stream, element / 4)[element % 4];
}

// Returns the key of the random numbers of an update, which has no micro-batch; the low words of both numbers.
constexpr PhiloxKey UpdateKey(int64_t seed, int64_t step) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(step), 0xFFFFFFFFu, 0};
}

// Rounds the bits of a float32 to those of one of the two neighboring bf16, with probabilities that make the expected
// value the number itself. Keeps infinities and NaN.
constexpr uint16_t RoundStochastically(uint32_t bits, uint32_t word) {
  constexpr uint32_t kInfinity = 0x7F800000u, kQuiet = 0x40;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= kInfinity) return static_cast<uint16_t>(bits >> 16 | (magnitude > kInfinity ? kQuiet : 0));
  return static_cast<uint16_t>((bits + (word >> 16)) >> 16);
}

}  // namespace onnxtrain
