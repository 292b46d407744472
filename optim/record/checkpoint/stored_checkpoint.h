// A checkpoint that is read: every byte of it is checked against its manifest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/status/statusor.h"
#include "frontend/data/sources/safetensors.h"

namespace onnxtrain {

// The manifest of a checkpoint: which files it has, with size and CRC-64 of each, and a checksum of its own.

inline constexpr char kManifestFile[] = "MANIFEST.json", kStateFile[] = "state.json";
inline constexpr char kModelTensors[] = "model", kOptimizerTensors[] = "optimizer";
inline constexpr char kCompressedSuffix[] = ".zst";
// Versions of the format: tensors are in one file, or in those of ranks.
inline constexpr int kWholeFormat = 3, kPartsFormat = 4;
inline constexpr int64_t kMaxStateBytes = int64_t{64} << 20;

// "model.safetensors", or "model.rank-1-of-4.safetensors" for what one of several ranks has written.
std::string TensorFileName(std::string_view tensors, int rank, int ranks);

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Returns the text of a manifest.
std::string ManifestText(const nlohmann::ordered_json& content);
// Reads a manifest and checks it: any change of its text is found.
absl::StatusOr<nlohmann::ordered_json> ReadManifest(const std::string& path);

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
