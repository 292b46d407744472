// Samples from a pipe: --data -
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// What messages call it.
inline constexpr char kStdinName[] = "standard input";

// Whether the path is "-".
bool IsStdin(const std::string& path);

// Reads the standard input to its end, once per process, into memory: JSON lines, a CSV table, or .npy arrays behind
// one another as numpy.save writes them to one file, which are columns "0", "1", … Fails where the samples do not fit
// the memory limit. JSON lines are read as they come where DatasetOptions::stream_window is set.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenStdin(const std::string& path, const DatasetOptions& options);

// The same from any bytes. Messages name `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenBytes(const std::string& name, const std::string& bytes,
                                                         const DatasetOptions& options);

}  // namespace onnxtrain
