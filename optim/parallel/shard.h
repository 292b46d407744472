// The division of weights, gradients and moments among ranks (ZeRO), and the choice of its level.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "optim/config/config.h"
#include "optim/config/optimizer.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The state that is divided among ranks; each level includes the previous ones.
enum class ShardLevel : uint8_t {
  kNone,
  kOptimizer,  // ZeRO-1: moments and the update of weights
  kGradients,  // ZeRO-2: reduced gradients as well
  kFull,       // ZeRO-3: large weights as well, which programs gather before they read them
};

struct Shard {
  int rank = 0, size = 1;

  bool whole() const { return size == 1; }
};

// Elements [begin, begin + elements) of a flat group. Every rank updates a slice of them (RangeOf).
struct ShardUnit {
  std::string name;  // of the moments and the gradient of the slice
  size_t group = 0;  // index
  int64_t begin = 0, elements = 0;
  int64_t slice = 0;        // elements of every slice except the last ones; 0: SliceElements
  std::string weight = {};  // the divided weight that has the unit as its row `row`; "": every rank has whole weights
  int64_t row = 0;
};

// A weight stored as a matrix [rows, ranks · slice], padded with zeros; every rank keeps `slice` columns.
struct DividedWeight {
  int64_t rows = 1, slice = 0;
};

// The range [begin, end) of elements of a flat tensor.
struct ShardRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

// Returns the elements of every slice except the last ones, which may have fewer or none. Slices are multiples of
// `multiple` elements; the default makes them multiples of 64 bytes for any element type.
inline int64_t SliceElements(int64_t elements, int ranks, int64_t multiple = 64) {
  return (elements + ranks * multiple - 1) / (ranks * multiple) * multiple;
}

inline int64_t SliceElements(const ShardUnit& unit, int ranks) {
  return unit.slice > 0 ? unit.slice : SliceElements(unit.elements, ranks);
}

// Returns the range of a unit that a rank updates, relative to the unit's begin.
inline ShardRange RangeOf(const ShardUnit& unit, const Shard& shard) {
  const int64_t slice = SliceElements(unit, shard.size);
  return {std::min(unit.elements, slice * shard.rank), std::min(unit.elements, slice * (shard.rank + 1))};
}

inline ShardRange RangeOf(int64_t elements, const Shard& shard) {
  return RangeOf(ShardUnit{.name = {}, .elements = elements}, shard);
}

// Returns the level that TrainConfig::shard names; kNone for "auto".
ShardLevel FindShardLevel(std::string_view name);
std::string_view ShardName(ShardLevel level);

// Returns true if a run on this device may divide gradients, only on the CPU, without fixed summation order and
// histograms.
bool MayDivideGradients(const TrainConfig& config, std::string_view device);

// The inputs of ChooseShardLevel.
struct ShardOptions {
  int ranks = 1;
  SessionMemory whole;               // memory of a rank if nothing is divided
  int64_t available = 0;             // bytes
  bool may_divide = true;            // moments (CheckDivides)
  bool may_divide_gradients = true;  // where moments are divided
};

// Returns the first level with which a rank needs at most half of the available memory; otherwise the last permitted
// one.
ShardLevel ChooseShardLevel(const ShardOptions& options);

}  // namespace onnxtrain
