// The manifest of a checkpoint: which files it has, with size and CRC-64 of each, and a checksum of its own.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
