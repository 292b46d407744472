// Checkpoints on disk: a folder of folders step-NNNNNNNN, each complete or not there at all.
//
//   model.safetensors      trained weights, running statistics and weight averages, by initializer name
//   optimizer.safetensors  moments and counters
//   state.json             everything else (run_state.h)
//   MANIFEST.json          size and CRC-64 of each file, and its own
//
// Compressed tensors are in model.safetensors.zst and optimizer.safetensors.zst.
//
// A checkpoint is written under a name that begins with ".tmp-", synced file by file with the manifest last, and then
// renamed: a process that is killed at any moment, and a disk that fails at any call, leave the older ones as they are.
// `latest` is a symbolic link to the newest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/formats/safetensors.h"

namespace onnxtrain {

struct CheckpointContent {
  int64_t step = 0;
  NamedArrays model, optimizer;
  std::string state;        // JSON
  bool compressed = false;  // the tensors, by Zstandard

  int64_t bytes() const;  // that it takes on disk at most
};

struct StoredFile {
  std::string path;
  int64_t unpacked_bytes = 0;  // after decompression
};

// A checkpoint whose files are whole.
struct StoredCheckpoint {
  std::string path;
  int64_t step = 0;
  std::string state;  // JSON
  StoredFile model, optimizer;
};

// A folder of checkpoints that one process writes to. Thread-compatible.
class CheckpointFolder {
 public:
  // Creates the folder, and removes what writers that were killed left behind.
  static absl::StatusOr<std::unique_ptr<CheckpointFolder>> Open(const std::string& path);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }  // as it was opened: for messages
  std::string handle() const;                        // a path of the folder wherever it is moved, as long as it is open

  // Fails where the disk has less space than a checkpoint of so many bytes takes.
  absl::Status CheckRoom(int64_t bytes) const;
  // Writes a checkpoint and points `latest` to it. Replaces one of the same step. Fails before it writes anything where
  // the disk has less space than it takes.
  absl::Status Write(const CheckpointContent& content);
  // Points the link `name` to the checkpoint of a step.
  absl::Status Link(const std::string& name, int64_t step);
  absl::Status Remove(int64_t step);

 private:
  CheckpointFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status RemoveLeftovers();
  absl::Status MoveIntoPlace(const std::string& temporary, const std::string& name);
  absl::Status Failed(std::string_view what) const;

  std::string path_;
  int fd_;
};

// "step-00000042"
std::string CheckpointName(int64_t step);

// The steps of the checkpoints in a folder, ascending; valid or not. Empty where there is no such folder.
std::vector<int64_t> ListCheckpoints(const std::string& folder);

// Opens one checkpoint, `path`, and checks every byte of it against the manifest.
absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const std::string& path);
absl::StatusOr<NamedArrays> ReadModelTensors(const StoredCheckpoint& checkpoint);
absl::StatusOr<NamedArrays> ReadOptimizerTensors(const StoredCheckpoint& checkpoint);

// Opens the newest valid checkpoint of a folder; says in *skipped what is wrong with those that are newer. NotFound
// where the folder holds none that is valid.
absl::StatusOr<StoredCheckpoint> OpenNewestCheckpoint(const std::string& folder, std::vector<std::string>* skipped);

}  // namespace onnxtrain
