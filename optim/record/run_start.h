// Where a run begins: at its beginning, or at a checkpoint, in a folder of its own or in the one that it goes on in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/training_run.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/recorder.h"
#include "optim/record/run_folder.h"

namespace onnxtrain {

// What is known before the model is loaded.
struct RunStart {
  TrainConfig config;                // with that of the checkpoint, if there is one
  std::optional<ResumePoint> point;  // with `resume`
  std::vector<std::string> notes;    // for people: what differs from the run that is resumed
  OldRun old_run = OldRun::kRefuse;

  bool continues_folder() const { return point.has_value() && old_run == OldRun::kContinue; }
};

// Finds the checkpoint that config.resume names. With `auto`, a run that was killed before its first checkpoint begins
// again.
absl::StatusOr<RunStart> FindRunStart(const TrainConfig& config);

// Has the run nothing left to do?
bool IsFinished(const RunStart& start);

// Fails where the model is not that of the checkpoint: before anything else of it is judged.
absl::Status CheckModelOfCheckpoint(const OnnxModel& model, RunStart* start);

// Opens the folder of the run, which must not replace files that it reads.
absl::StatusOr<std::unique_ptr<OutputFolder>> OpenRunFolder(const RunStart& start);

// Returns what a recorder of the run needs, with its decisions as the file that repeats it. Display, position and files
// of single flags are left out.
RecordedRun DescribeRun(OutputFolder& folder, TrainingRun* run);

// Brings the session to where the checkpoint left it. Notes what may change the rounding from here on. `resolved`: of
// ResolveConfig.
absl::Status ResumeSession(const TrainConfig& resolved, const std::string& fingerprint, RunStart* start,
                           TrainingRun* run);

}  // namespace onnxtrain
