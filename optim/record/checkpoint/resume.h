// Resumes a run from a checkpoint: opens it, merges its configuration with the current one, checks that model and data
// are the same, and restores the session.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The content of a checkpoint's state.json: everything but tensors that a run needs to continue.
struct RunState {
  std::string version, cpu;  // program version and machine that wrote it
  LoopPosition position;
  SessionCounters session;
  bool finished = false;  // the run came to its end: epochs, max_steps or early stopping
  TrainConfig config;     // with every automatic choice resolved
  std::string model_sha256, data_fingerprint;
  std::string external_data;  // FindExternalDataDigest of the model; "": none, or not known
  double samples_per_second = 0;
};

// Returns indented JSON. Numbers that are not finite are null.
std::string ToJson(const RunState& state);
// Errors name the field that is missing or has a wrong type.
absl::StatusOr<RunState> ParseRunState(std::string_view json);

// Returns the state of a session for programs with their own loop: "ONXTRST1", CRC-64 of the rest (8 bytes), then
// Session::State and the counters in the safetensors format.
absl::StatusOr<std::string> SaveSessionState(Session& session);

// Loads a state saved by a session of the same model and options, and returns its learning rate factor
// (Session::SetPlateau). Changes nothing on an error.
absl::StatusOr<double> LoadSessionState(std::string_view bytes, Session* session);

// Returns the learning rate factor of a session.
absl::StatusOr<double> ReadPlateau(Session& session);

inline constexpr char kCheckpointsFolder[] = "checkpoints";  // in the folder of a run

struct ResumePoint {
  StoredCheckpoint checkpoint;
  RunState state;
  std::vector<std::string> skipped;  // errors of newer checkpoints
};

// Opens the checkpoint at `path`, or the newest valid one if `path` is a folder of checkpoints or of a run. Returns
// kNotFound if there is no checkpoint. Errors name the path.
absl::StatusOr<ResumePoint> OpenResumePoint(const std::string& path);

// Returns the configuration of the checkpoint, overridden by the fields that `given` specifies, and adds a note for
// each field that changes the numbers of the run. A field that must not change is an error; with `given.resume_force`
// the value of the checkpoint is kept and noted.
absl::StatusOr<TrainConfig> MergeConfig(const TrainConfig& given, const RunState& saved,
                                        std::vector<std::string>* notes);

// Returns a digest of the number of samples, their binding to inputs, and the samples: all of them up to 8 MiB,
// otherwise 8 MiB of evenly spaced ones, at least 64.
std::string DataFingerprint(const TrainData& data);

// Returns a digest of the sizes and of evenly spaced blocks of a model's external data files; "" without such files.
// The frozen weights of a run are in no checkpoint, and the hash of the model file does not cover them.
std::string FindExternalDataDigest(const std::string& model);

// Fail if model or data differ from those of the checkpoint; with `force`, they add a note instead.
absl::Status CheckSameModel(const RunState& saved, const std::string& model_sha256, bool force,
                            std::vector<std::string>* notes);
absl::Status CheckSameExternalData(const RunState& saved, const std::string& external_data, bool force,
                                   std::vector<std::string>* notes);
absl::Status CheckSameData(const RunState& saved, const std::string& data_fingerprint, bool force,
                           std::vector<std::string>* notes);

// Reads the checkpoint's tensors into the session.
absl::Status RestoreSession(const ResumePoint& point, Session* session);

// Fails for a run with scaled targets: the checkpoint lacks the scale that converts predictions to the original unit.
absl::Status CheckUnit(const ResumePoint& point);

// Returns the weights and running statistics of a checkpoint by initializer name. With `average`, averages of weights
// replace the weights.
absl::StatusOr<std::map<std::string, HostTensor>> ReadWeights(const StoredCheckpoint& checkpoint, bool average);

}  // namespace onnxtrain
