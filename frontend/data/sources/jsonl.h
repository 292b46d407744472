// JSON lines: one object per line (https://jsonlines.org).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Opens a .jsonl, .ndjson or .json file. The columns are the keys, in the order in which they appear. Numbers, true,
// false and strings are what a CSV file has in its fields, with the same rules for labels, categories, text and missing
// values; arrays, also nested ones, of numbers are tensors of one shape. null and a key that a line lacks are missing
// values. Without DatasetOptions::label the label is the last key of the first line.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenJsonLines(const std::string& path, const DatasetOptions& options);

// The lines of such a file, or those that its document stands for.
absl::StatusOr<ReadFn> OpenAsJsonLines(const std::string& path, int64_t limit, const std::string& encoding);

// The same from a stream. Messages name `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> ReadJsonLines(const std::string& name, const ReadFn& read,
                                                             const DatasetOptions& options);

}  // namespace onnxtrain
