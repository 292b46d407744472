#include "frontend/data/epoch_order.h"

#include <array>
#include <numeric>
#include <utility>

#include "frontend/base/philox.h"

namespace onnxtrain {
namespace {

class Words {
 public:
  Words(uint64_t seed, uint64_t epoch) : key_{LowWord(seed), HighWord(seed) ^ 0x53485546}, epoch_(epoch) {}

  uint64_t Next() {
    if (half_ == 0)
      block_ = Philox4x32({LowWord(counter_), HighWord(counter_), LowWord(epoch_), HighWord(epoch_)}, key_);
    const uint64_t word = block_[2 * half_] | uint64_t{block_[2 * half_ + 1]} << 32;
    half_ ^= 1;
    counter_ += half_ == 0;
    return word;
  }

  // Draws uniformly from [0, bound).
  uint64_t DrawBelow(uint64_t bound) {
    const uint64_t biased = -bound % bound;  // 2^64 mod bound: rejects that many low products
    while (true) {
      const auto product = static_cast<unsigned __int128>(Next()) * bound;
      if (static_cast<uint64_t>(product) >= biased) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  static uint32_t LowWord(uint64_t v) { return static_cast<uint32_t>(v); }
  static uint32_t HighWord(uint64_t v) { return static_cast<uint32_t>(v >> 32); }

  std::array<uint32_t, 2> key_;
  uint64_t epoch_, counter_ = 0;
  PhiloxBlock block_{};
  int half_ = 0;
};

}  // namespace

std::vector<int64_t> EpochOrder(int64_t n, uint64_t seed, int64_t epoch, bool shuffle) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  Words words(seed, static_cast<uint64_t>(epoch));
  for (int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[words.DrawBelow(i + 1)]);
  return order;
}

}  // namespace onnxtrain
