// Generates samples of given types for runs without data. Each value is a pure function of (seed, column, sample,
// element).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

struct SyntheticColumn {
  std::string name;
  Type sample;
  int64_t low = 0, high = 2;  // integers are uniform in [low, high), not empty and within the type
};

// Draws standard normal floats and fair bools with Philox4x32-10: key (seed low ⊕ 0x73796E74, seed high ⊕ column),
// counter (block low, block high, sample low, sample high), a block being four elements.
std::shared_ptr<const Dataset> SyntheticDataset(std::vector<SyntheticColumn> columns, int64_t size, uint64_t seed);

}  // namespace onnxtrain
