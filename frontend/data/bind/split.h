// Divides the samples of one file into training and evaluation, and finds both in folders that hold a file for each:
// train.csv and val.csv, train.bin and val.bin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Samples by index, in the order of the data.
struct SplitRows {
  std::vector<int64_t> train, eval;
};

struct SplitSpec {
  double fraction = 0;  // in (0, 1)
  bool last = false;    // the end of the data, not a random part
};
// "0.1" or "last:0.1"
absl::StatusOr<SplitSpec> ParseSplit(std::string_view text);

// The last round(fraction · size) samples are for evaluation, at least 1 and not all. Requires size ≥ 2.
SplitRows SplitAtEnd(int64_t size, double fraction);

// Evaluates the samples whose hash is below `fraction` of all hashes, at least 1 and not all: about that fraction. The
// hash depends on `seed` and the sample's values alone, so samples that a file gains later leave the others where they
// are, and equal samples are on one side. Samples with a Dataset::StableName are hashed by it, others that are not in
// memory by their index, so that no file is read twice. Requires size ≥ 2.
SplitRows SplitByHash(const Dataset& data, double fraction, uint64_t seed);

// Splits by a column of the file `path`, which data of `size` samples was opened from with `options`: numbers other
// than 0 and the names test, eval, valid, validation, val and dev select evaluation, 0 and train select training.
// Anything else is an error, and so is a part without samples. Unreadable samples are for training.
absl::StatusOr<SplitRows> SplitByColumn(int64_t size, const std::string& path, DatasetOptions options,
                                        const std::string& column);

struct SplitFiles {
  std::string train;  // the one that is called so, else the only table
  std::string eval;   // "": there is none
  std::string test;   // a table of samples without labels, as competitions give it; "": there is none
};

// Finds them by their names and suffixes; folders of classes for training come first. Nullopt where there is
// no file for training. A table for evaluation has all columns of the one for training.
std::optional<SplitFiles> FindSplitFiles(const std::string& folder);

}  // namespace onnxtrain
