// Splits the samples of a file into training and evaluation, and finds the files for both in a folder: train.csv and
// val.csv, train.bin and val.bin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Sample indices in ascending order.
struct SplitRows {
  std::vector<int64_t> train, eval;
};

struct SplitSpec {
  double fraction = 0;  // share of evaluation samples, in (0, 1)
  bool last = false;    // evaluate the end of the data, not a random part
};
// Parses "0.1" or "last:0.1".
absl::StatusOr<SplitSpec> ParseSplit(std::string_view text);

// Selects the last round(fraction · size) samples for evaluation, at least 1 and not all. Requires size ≥ 2.
SplitRows SplitAtEnd(int64_t size, double fraction);

// Selects the samples whose hash is below `fraction` of the hash range for evaluation, at least 1 and not all. The hash
// depends on `seed` and the sample's values only, so samples that are appended to a file do not change the split of the
// others, and equal samples are in the same part. Samples with a Dataset::StableName are hashed by it, others that are
// not in memory by their index, so that no file is read twice. Requires size ≥ 2.
SplitRows SplitByHash(const Dataset& data, double fraction, uint64_t seed);

// Splits by a column of the file `path`, from which data of `size` samples was opened with `options`: numbers other
// than 0 and the names test, eval, valid, validation, val and dev select evaluation, 0 and train select training. Fails
// on other values and if a part is empty. Unreadable samples are used for training.
absl::StatusOr<SplitRows> SplitByColumn(int64_t size, const std::string& path, DatasetOptions options,
                                        const std::string& column);

struct SplitFiles {
  std::string train;  // the file named train, else the only table
  std::string eval;   // "": none
  std::string test;   // table without labels, as in competitions; "": none
};

// Finds the files by name and suffix; folders with a folder per class take precedence. nullopt if there is no training
// file. An evaluation table must have all columns of the training table.
std::optional<SplitFiles> FindSplitFiles(const std::string& folder);

}  // namespace onnxtrain
