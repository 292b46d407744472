// Checkpoints on disk: a folder of folders step-NNNNNNNN, each complete or not there at all.
//
//   model.safetensors      trained weights, running statistics and weight averages, by initializer name
//   optimizer.safetensors  moments and counters
//   state.json             everything else (run_state.h)
//   MANIFEST.json          size and CRC-64 of each file, and its own
//
// Compressed tensors are in model.safetensors.zst and optimizer.safetensors.zst. Ranks that divide the state write
// parts of the tensors (state.h), each to model.rank-R-of-N.safetensors and optimizer.rank-R-of-N.safetensors;
// the manifest then lists the tensors, too.
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
#include "frontend/data/sources/safetensors.h"
#include "optim/record/checkpoint/stored_checkpoint.h"

namespace onnxtrain {

struct WholeStateTensor {
  std::string name;
  bool of_model = false;
  Type type;
};

struct CheckpointContent {
  int64_t step = 0;
  NamedArrays model, optimizer;  // of several ranks: the parts of this one
  std::string state;             // JSON
  bool compressed = false;       // the tensors, by Zstandard
  // On rank 0 of several: what their parts make up.
  std::vector<WholeStateTensor> whole = {};

  int64_t bytes() const;  // that it takes on disk at most
};

// A folder of checkpoints that one process writes to, with other ranks of its run. Thread-compatible.
class CheckpointFolder {
 public:
  // Creates the folder, and removes what writers that were killed left behind.
  static absl::StatusOr<std::unique_ptr<CheckpointFolder>> Open(const std::string& path);
  // Opens the folder that rank 0 has opened, for WriteParts.
  static absl::StatusOr<std::unique_ptr<CheckpointFolder>> OpenExisting(const std::string& path);
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
  // The same in steps, for ranks that write together. On rank 0: makes the folder that all write to.
  absl::Status Begin(const CheckpointContent& content);
  // On every rank: writes its tensors, and returns what the manifest says of their files.
  absl::StatusOr<std::string> WriteParts(const CheckpointContent& content, int rank, int ranks);
  // On rank 0, once every rank has written: completes the checkpoint. `written`: of all ranks, by rank.
  absl::Status Complete(const CheckpointContent& content, const std::vector<std::string>& written);
  // On rank 0: removes what has been written since Begin.
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

// The steps of the checkpoints in a folder, ascending; valid or not. Empty where there is no such folder.
std::vector<int64_t> ListCheckpoints(const std::string& folder);

// Opens the newest valid checkpoint of a folder; says in *skipped what is wrong with those that are newer. NotFound
// where the folder holds none that is valid.
absl::StatusOr<StoredCheckpoint> OpenNewestCheckpoint(const std::string& folder, std::vector<std::string>* skipped);

}  // namespace onnxtrain
