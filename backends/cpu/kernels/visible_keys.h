// The keys of an attention whose probabilities are not exactly zero, by the mask.
#pragma once

#include <cstdint>

namespace onnxtrain::cpu {

constexpr int64_t kPanel = 64;  // keys of a panel, which a product reads in order

// Keys from `begin` up to `end`: a row of the result of cpu.VisibleKeys.
struct KeyRange {
  int64_t begin, end;
  int64_t masked;  // 0: the mask is zero for all of them, and from a multiple of 16 on; else 1

  int64_t size() const { return end - begin; }
};

// The keys that each query attends to lie in one range. A causal mask halves the work.
struct VisibleKeys {
  const KeyRange* by_query;  // null: all keys
  int64_t keys;

  // Returns the ranges of the queries from `first` on; null: all keys.
  const KeyRange* From(int64_t first) const { return by_query == nullptr ? nullptr : by_query + first; }

  // Returns the range of `count` queries from `first` on, at least 1; it begins with a panel.
  KeyRange By(int64_t first, int64_t count) const;
};

// The bound of |q·k·scale| under which FindVisibleKeys is exact.
constexpr float kMaxScore = 2000;

// Finds the visible keys of every query from a mask [queries, keys]. A key is skipped if its probability is exactly
// zero: its mask is at most −9000, another key of the query has a mask of at least −100, and |q·k·scale| is at most
// kMaxScore, so that the probability is at most e^−4900.
void FindVisibleKeys(const float* mask, int64_t queries, int64_t keys, KeyRange* seen);

}  // namespace onnxtrain::cpu
