// Random numbers of all random operators: Philox4x32-10 (frontend/base/philox.h), with key and counter derived as in
// README.md. Pure functions of their arguments: recomputation yields the same numbers, and any element is computed
// without its predecessors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "frontend/base/philox.h"

namespace onnxtrain {

// The key input of a random operator: u32[4] in this order.
struct PhiloxKey {
  uint32_t seed = 0, step = 0, micro = 0, piece = 0;

  // Reads the four words of the key input.
  static constexpr PhiloxKey From(const uint32_t* words) { return {words[0], words[1], words[2], words[3]}; }
};

// Several ranks compute pieces of one micro-batch. `piece`, a word of the key, says that a tensor of `elements`
// elements is behind elements·p/q others: p in its upper half, q (at least 1) in its lower half.
constexpr uint64_t FirstElement(uint32_t piece, uint64_t elements) {
  return elements * (piece >> 16) / std::max<uint32_t>(1, piece & 0xFFFF);
}

// Returns the piece behind `skipped` samples of `count` samples. Where the fraction does not fit, it is rounded down.
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

}  // namespace onnxtrain
