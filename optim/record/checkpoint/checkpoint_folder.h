// Writes and reads checkpoints: folders step-NNNNNNNN, each of them complete or absent.
//
//   model.safetensors      trained weights, running statistics and weight averages, by initializer name
//   optimizer.safetensors  moments and counters
//   state.json             everything else (resume.h)
//   MANIFEST.json          size and CRC-64 of each file, and its own
//
// Compressed tensors are in model.safetensors.zst and optimizer.safetensors.zst. Ranks that divide the state write
// parts of the tensors (state.h), each to model.rank-R-of-N.safetensors and optimizer.rank-R-of-N.safetensors;
// the manifest then lists the tensors, too.
//
// A checkpoint is written under a name that begins with ".tmp-", synced file by file with the manifest last, and then
// renamed: if the process is killed or the disk fails, older checkpoints are unchanged. `latest` is a symbolic link to
// the newest.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/status/statusor.h"
#include "frontend/data/sources/safetensors.h"

namespace onnxtrain {

inline constexpr char kManifestFile[] = "MANIFEST.json", kStateFile[] = "state.json";
inline constexpr char kModelTensors[] = "model", kOptimizerTensors[] = "optimizer";
inline constexpr char kCompressedSuffix[] = ".zst";
// Versions of the format: all tensors in one file, or parts in one file per rank.
inline constexpr int kWholeFormat = 3, kPartsFormat = 4;
inline constexpr int64_t kMaxStateBytes = int64_t{64} << 20;

// Returns "model.safetensors", or "model.rank-1-of-4.safetensors" for the parts of one of several ranks.
std::string TensorFileName(std::string_view tensors, int rank, int ranks);

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Returns the text of a manifest, with its own checksum.
std::string ManifestText(const nlohmann::ordered_json& content);
// Reads a manifest and verifies its checksum.
absl::StatusOr<nlohmann::ordered_json> ReadManifest(const std::string& path);

struct StoredFile {
  std::string path;
  int64_t unpacked_bytes = 0;  // after decompression
};

struct StoredTensors {
  std::vector<StoredFile> files;
  // The tensors that the parts in `files` form, with one file per rank. Empty if the single file holds whole tensors.
  std::vector<NamedType> whole;
};

// A checkpoint whose files have been verified.
struct StoredCheckpoint {
  std::string path;
  int64_t step = 0;
  std::string state;  // text of state.json
  StoredTensors model, optimizer;
};

// Opens the checkpoint at `path`, and checks every byte of it against the manifest.
absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const std::string& path);
// Return whole tensors, assembled from parts if ranks wrote them; one file of parts is in memory at a time.
absl::StatusOr<NamedArrays> ReadModelTensors(const StoredCheckpoint& checkpoint);
absl::StatusOr<NamedArrays> ReadOptimizerTensors(const StoredCheckpoint& checkpoint);
// Passes all tensors to `visit`, one at a time. Tensors that ranks wrote in parts are all in memory meanwhile.
absl::Status VisitTensors(const StoredCheckpoint& checkpoint, const ArrayVisitor& visit);

// A tensor of the state that the parts of several ranks form.
struct WholeStateTensor {
  std::string name;
  bool of_model = false;
  Type type;
};

struct CheckpointContent {
  int64_t step = 0;
  NamedArrays model, optimizer;  // with several ranks: the parts of this one
  std::string state;             // text of state.json
  bool compressed = false;       // compresses the tensors with Zstandard
  // On rank 0 of several: the whole tensors that the parts of all ranks form.
  std::vector<WholeStateTensor> whole = {};

  int64_t bytes() const;  // upper bound of the size on disk
};

// A folder of checkpoints that the ranks of one run write to. Thread-compatible.
class CheckpointFolder {
 public:
  // Creates the folder, and removes incomplete checkpoints of killed writers.
  static absl::StatusOr<std::unique_ptr<CheckpointFolder>> Open(const std::string& path);
  // Opens the folder that rank 0 has opened, for WriteParts.
  static absl::StatusOr<std::unique_ptr<CheckpointFolder>> OpenExisting(const std::string& path);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }  // the path given to Open, for messages
  std::string handle() const;                        // a path that stays valid if the folder is moved while it is open

  // Fails if the disk has no room for a checkpoint of this size.
  absl::Status CheckRoom(int64_t bytes) const;
  // Writes a checkpoint, replacing one of the same step, and points `latest` to it. Fails before writing anything if
  // the disk has no room for it.
  absl::Status Write(const CheckpointContent& content);
  // Begin, WriteParts and Complete write one checkpoint of several ranks. Rank 0 calls Begin to create its folder.
  absl::Status Begin(const CheckpointContent& content);
  // Writes the tensors of this rank, and returns the manifest entries of their files. Called on every rank.
  absl::StatusOr<std::string> WriteParts(const CheckpointContent& content, int rank, int ranks);
  // Completes the checkpoint. Rank 0 calls it with the results of WriteParts by rank, after all ranks have written.
  absl::Status Complete(const CheckpointContent& content, const std::vector<std::string>& written);
  // Removes everything written since Begin. Called on rank 0.
  void Discard(int64_t step);
  // Points the link `name` to the checkpoint of a step.
  absl::Status Link(const std::string& name, int64_t step);
  absl::Status Remove(int64_t step);

 private:
  CheckpointFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status RemoveLeftovers();
  absl::StatusOr<int> OpenTemporary(int64_t step) const;
  absl::Status WriteList(const CheckpointContent& content, const std::vector<std::string>& written);
  absl::Status MoveIntoPlace(const std::string& temporary, const std::string& name);
  absl::Status Failed(std::string_view what) const;

  std::string path_;
  int fd_;
};

// "step-00000042"
std::string CheckpointName(int64_t step);

// Returns the steps of the checkpoints in a folder, ascending, without validating them. Empty if there is no folder.
std::vector<int64_t> ListCheckpoints(const std::string& folder);

// Opens the newest valid checkpoint of a folder, and adds the errors of newer ones to *skipped. Returns kNotFound if no
// checkpoint is valid.
absl::StatusOr<StoredCheckpoint> OpenNewestCheckpoint(const std::string& folder, std::vector<std::string>* skipped);

}  // namespace onnxtrain
