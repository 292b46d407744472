// Random numbers of one sample in one pass over the data, whoever draws them and when.
#pragma once

#include <cmath>
#include <cstdint>

#include "frontend/base/philox.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Draws numbers one after the other. Equal (pass, sample, stream) draw equal numbers; different streams are
// independent.
class KeyedRandom {
 public:
  KeyedRandom(const ReadPass& pass, int64_t sample, uint32_t stream)
      : key_{Low(pass.seed), High(pass.seed)},
        counter_{0, stream << 24 ^ High(sample), Low(sample), static_cast<uint32_t>(pass.epoch)} {}

  uint32_t Word() {
    if (used_ == 4) {
      block_ = Philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  // In [low, high).
  double Uniform(double low = 0, double high = 1) { return low + (high - low) * double(WordToUniform(Word())); }
  bool Chance(double p) { return Uniform() < p; }
  // In [0, n).
  int64_t Below(int64_t n) { return static_cast<int64_t>((uint64_t{Word()} * static_cast<uint64_t>(n)) >> 32); }
  double Normal() {
    const uint32_t first = Word(), second = Word();
    return BoxMuller(first, second)[0];
  }

 private:
  static uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
  static uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  std::array<uint32_t, 2> key_;
  PhiloxBlock counter_, block_ = {};
  int used_ = 4;
};

}  // namespace onnxtrain
