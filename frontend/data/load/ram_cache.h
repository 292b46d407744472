// Keeps the samples of files in memory.
#pragma once

#include <memory>
#include <vector>

#include "frontend/data/load/cache_budget.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Returns a view that keeps the values of `columns` from their first read on, as far as the budget lasts. Keeps no
// single values, no values of their own lengths, and none that depend on the pass (Column::augmented), which sources
// keep in a form of their own (ImageOptions::cache). Returns null where nothing of it is worth keeping: all is in
// memory already.
std::shared_ptr<const Dataset> CacheInRam(std::shared_ptr<const Dataset> source, const std::vector<int>& columns,
                                          std::shared_ptr<CacheBudget> budget);

}  // namespace onnxtrain
