// Plain text as documents: one text column "text".
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Whether the path is a folder of .txt files (also .gz, .zst) and nothing else but hidden files.
bool IsTextFolder(const std::string& path);

// Each file is a document: one file, or those of a folder in the order of their names. They are held in memory, and
// refused where they do not fit the memory limit.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTextFiles(const std::string& path, const DatasetOptions& options);

// Each line of a file that is not blank is a document.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTextLines(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
