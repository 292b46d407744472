#include "backends/cpu/kernels/visible_keys.h"

#include <algorithm>

namespace onnxtrain::cpu {

constexpr float kMaskedScore = -9000, kUnmaskedScore = -100;

KeyRange VisibleKeys::By(int64_t first, int64_t count) const {
  if (by_query == nullptr) return {0, keys, 1};
  KeyRange all = by_query[first];
  for (int64_t i = first + 1; i < first + count; ++i) {
    all.begin = std::min(all.begin, by_query[i].begin);
    all.end = std::max(all.end, by_query[i].end);
  }
  return {all.begin / kPanel * kPanel, all.end, 1};
}

void FindVisibleKeys(const float* mask, int64_t queries, int64_t keys, KeyRange* seen) {
  const auto hides = [](float x) { return x <= kMaskedScore; };
  for (int64_t i = 0; i < queries; ++i) {
    const float *row = mask + i * keys, *end = row + keys;
    while (end > row && hides(end[-1])) --end;
    const float* begin = std::find_if_not(row, end, hides);
    const bool any = std::any_of(begin, end, [](float x) { return x >= kUnmaskedScore; });
    const bool masked = (begin - row) % 16 != 0 || std::any_of(begin, end, [](float x) { return x != 0; });
    seen[i] = any ? KeyRange{begin - row, end - row, masked ? 1 : 0} : KeyRange{0, keys, 1};
  }
}

}  // namespace onnxtrain::cpu
