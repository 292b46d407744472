// A checkpoint that is read: every byte of it is checked against its manifest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/safetensors.h"

namespace onnxtrain {

struct StoredFile {
  std::string path;
  int64_t unpacked_bytes = 0;  // after decompression
};

struct StoredTensors {
  std::vector<StoredFile> files;
  // Where ranks have written parts, one file each: the tensors that these make up. Empty: the one file has tensors.
  std::vector<NamedType> whole;
};

// A checkpoint whose files are whole.
struct StoredCheckpoint {
  std::string path;
  int64_t step = 0;
  std::string state;  // JSON
  StoredTensors model, optimizer;
};

// Opens one checkpoint, `path`, and checks every byte of it against the manifest.
absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const std::string& path);
// Whole tensors, whoever has written their parts. Hold a file of parts beside them.
absl::StatusOr<NamedArrays> ReadModelTensors(const StoredCheckpoint& checkpoint);
absl::StatusOr<NamedArrays> ReadOptimizerTensors(const StoredCheckpoint& checkpoint);
// Passes all tensors to `visit`, one at a time. What ranks have written is in memory as a whole meanwhile.
absl::Status VisitTensors(const StoredCheckpoint& checkpoint, const ArrayVisitor& visit);

}  // namespace onnxtrain
