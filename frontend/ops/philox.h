// The random numbers of every random operator: Philox4x32-10 (frontend/base/philox.h) with the derivation of key and
// counter that README.md gives. A pure function of its arguments, so recomputing gives the same numbers and any element
// can be had without those before it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "frontend/base/philox.h"

namespace onnxtrain {

// What a random operator is fed: u32[4] in this order.
struct PhiloxKey {
  uint32_t seed = 0, step = 0, micro = 0, rank = 0;

  // From the four words of the key input.
  static constexpr PhiloxKey From(const uint32_t* words) { return {words[0], words[1], words[2], words[3]}; }
};

// The words of the elements 4·block … 4·block+3 of the operator with this stream attribute.
constexpr PhiloxBlock RandomBlock(const PhiloxKey& key, int64_t stream, uint64_t block) {
  const auto s = static_cast<uint32_t>(stream);
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), key.step, key.micro},
                    {key.seed + 0x9E3779B9u * s, key.rank ^ (s * 0x85EBCA6Bu)});
}

constexpr uint32_t RandomWord(const PhiloxKey& key, int64_t stream, uint64_t element) {
  return RandomBlock(key, stream, element / 4)[element % 4];
}

}  // namespace onnxtrain
