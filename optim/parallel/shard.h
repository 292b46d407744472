// Which part of a flat tensor one of several ranks updates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "optim/config/config.h"
#include "optim/config/optimizer.h"
#include "optim/step/session.h"

namespace onnxtrain {

// What is divided among ranks.
enum class ShardLevel : uint8_t {
  kNone,
  kOptimizer,  // moments, and the update of weights
  kGradients,  // their sums, too
  kFull,       // large weights, too: programs gather them where they read them
};

struct Shard {
  int rank = 0, size = 1;

  bool whole() const { return size == 1; }
};

// Elements [begin, begin + elements) of a flat group, of which every rank updates a slice (RangeOf).
struct ShardUnit {
  std::string name;  // of the moments and the gradient of the slice
  size_t group = 0;  // index
  int64_t begin = 0, elements = 0;
  int64_t slice = 0;        // elements of every slice but the last ones; 0: SliceElements
  std::string weight = {};  // of which it is row `row` (DividedWeight); "": every rank has the whole weights
  int64_t row = 0;
};

// A weight of which every rank keeps columns of a matrix [rows, ranks · slice], which has its elements and then zeros.
struct DividedWeight {
  int64_t rows = 1, slice = 0;
};

// Elements [begin, end) of a flat tensor.
struct ShardRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

// Elements of every slice but the last ones, which may have fewer or none: a multiple of 64 bytes of any type.
inline int64_t SliceElements(int64_t elements, int ranks) {
  constexpr int64_t kMultiple = 64;
  return (elements + ranks * kMultiple - 1) / (ranks * kMultiple) * kMultiple;
}

inline int64_t SliceElements(const ShardUnit& unit, int ranks) {
  return unit.slice > 0 ? unit.slice : SliceElements(unit.elements, ranks);
}

// Of a unit, relative to its begin.
inline ShardRange RangeOf(const ShardUnit& unit, const Shard& shard) {
  const int64_t slice = SliceElements(unit, shard.size);
  return {std::min(unit.elements, slice * shard.rank), std::min(unit.elements, slice * (shard.rank + 1))};
}

inline ShardRange RangeOf(int64_t elements, const Shard& shard) {
  return RangeOf(ShardUnit{.name = {}, .elements = elements}, shard);
}

// `--shard`: names of ShardLevel, and the choice among them by memory.

// Returns the level that TrainConfig::shard names; kNone for "auto".
ShardLevel FindShardLevel(std::string_view name);
std::string_view ShardName(ShardLevel level);

// Whether a run on this device may divide gradients: not where they are summed or shown whole.
bool MayDivideGradients(const TrainConfig& config, std::string_view device);

// What a choice is made from.
struct ShardOptions {
  int ranks = 1;
  SessionMemory whole;               // of a rank, where nothing is divided
  int64_t available = 0;             // bytes
  bool may_divide = true;            // moments (CheckDivides)
  bool may_divide_gradients = true;  // where moments are divided
};

// Returns the first level with which a rank takes at most half of the memory, or else the last one that it can take.
ShardLevel ChooseShardLevel(const ShardOptions& options);

}  // namespace onnxtrain
