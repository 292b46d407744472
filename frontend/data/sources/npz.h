// Archives of named arrays, as NumPy's savez and savez_compressed write them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/npy.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

using NamedArrays = std::vector<std::pair<std::string, HostTensor>>;

// Reads all arrays, of any shapes, in the order of the file. Checks the sizes in the zip directory and the .npy headers
// against each other, against what deflate can pack and against `max_bytes` (0: half of the available memory) before it
// allocates memory. Errors name the file and the array.
absl::StatusOr<NamedArrays> ReadNpz(const std::string& path, int64_t max_bytes = 0);

// The same of the arrays whose names are wanted.
absl::StatusOr<NamedArrays> ReadNpzWhere(const std::function<bool(const std::string& name)>& is_wanted,
                                         const std::string& path, int64_t max_bytes);

// The same of arrays of numbers or texts.
absl::StatusOr<std::vector<std::pair<std::string, NpyArray>>> ReadNpzArrays(
    const std::function<bool(const std::string& name)>& is_wanted, const std::string& path, int64_t max_bytes);

// Writes the arrays, stored or deflated, and replaces `path` atomically. Fails on bf16, which NumPy has no type for.
absl::Status WriteNpz(const std::string& path, const NamedArrays& arrays, bool compressed = false);

// Opens an archive as a data set: one column per array, in the order of the file, of the same leading extent. Of
// archives of more than 64 MiB, stored arrays stay in the file; their checksums are not compared then. Of an archive of
// x_train, y_train, x_test, y_test or the like it opens one part (npz_parts.h), as columns x and y.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpz(const std::string& path, const DatasetOptions& options);
// Are there such parts?
bool HasEvalArrays(const std::string& path);

}  // namespace onnxtrain
