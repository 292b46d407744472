// Continues a run from a checkpoint: finds it, merges its configuration with what the user asks for now, checks that
// model and data are the same, and restores the session.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "optim/record/checkpoint/run_state.h"
#include "optim/step/session.h"

namespace onnxtrain {

inline constexpr char kCheckpointsFolder[] = "checkpoints";  // in the folder of a run

struct ResumePoint {
  StoredCheckpoint checkpoint;
  RunState state;
  std::vector<std::string> skipped;  // what is wrong with newer checkpoints
};

// `path`: a checkpoint, a folder of checkpoints, or the folder of a run, of which it opens the newest valid one.
// NotFound where there is none at all. The error names the path.
absl::StatusOr<ResumePoint> OpenResumePoint(const std::string& path);

// Returns the configuration of the checkpoint with the fields that `given` specifies. Says in *notes what changes the
// run from here on. A field that would make it another run is an error; with `given.resume_force` it keeps the value of
// the checkpoint, and a note says so.
absl::StatusOr<TrainConfig> MergeConfig(const TrainConfig& given, const RunState& saved,
                                        std::vector<std::string>* notes);

// Returns a digest of the number of samples, of how they are fed, and of all samples, where these have up to 8 MiB,
// else of as many at equal distances, at least 64.
std::string DataFingerprint(const TrainData& data);

// Fail where the model or the data is another one; with `force`, a note says so.
absl::Status CheckSameModel(const RunState& saved, const std::string& model_sha256, bool force,
                            std::vector<std::string>* notes);
absl::Status CheckSameData(const RunState& saved, const std::string& data_fingerprint, bool force,
                           std::vector<std::string>* notes);

// Reads the checkpoint's tensors into the session.
absl::Status RestoreSession(const ResumePoint& point, Session* session);

// Fails for a run with scaled targets: its weights predict in a unit that the checkpoint does not hold.
absl::Status CheckUnit(const ResumePoint& point);

// Returns the weights and running statistics of a checkpoint by initializer name, the averages of weights in their
// place where `average`.
absl::StatusOr<std::map<std::string, HostTensor>> ReadWeights(const StoredCheckpoint& checkpoint, bool average);

}  // namespace onnxtrain
