// Arrays of texts, NumPy's types S and U.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/memory_dataset.h"
#include "frontend/data/sources/npy.h"

namespace onnxtrain {

// Decodes the elements of an array [], [n] or [n, 1] of texts to UTF-8, without the zeros behind them. Fails on other
// shapes, naming the text on bytes that are no Unicode.
absl::StatusOr<std::vector<std::string>> DecodeTexts(const NpyHeader& header, std::span<const std::byte> elements);

// Makes a column of an array of the file `path`: of texts as of a CSV file, where a column is a label if
// DatasetOptions::label has it, or by its name where that is empty.
absl::StatusOr<NamedTensor> MakeArrayColumn(const std::string& path, const std::string& name, NpyArray array,
                                            const DatasetOptions& options);

}  // namespace onnxtrain
