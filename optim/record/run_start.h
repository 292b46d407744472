// Starts a run from the beginning or from a checkpoint, in a new folder or in the one of the resumed run.
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

// The configuration and the checkpoint of a run, before its model is loaded.
struct RunStart {
  TrainConfig config;                // merged with that of the checkpoint, if there is one
  std::optional<ResumePoint> point;  // set with `resume`
  std::vector<std::string> notes;    // messages about differences from the resumed run
  OldRun old_run = OldRun::kRefuse;

  bool continues_folder() const { return point.has_value() && old_run == OldRun::kContinue; }
};

// Opens the checkpoint that config.resume names. With `auto`, a run without a checkpoint starts from the beginning.
absl::StatusOr<RunStart> FindRunStart(const TrainConfig& config);

// Returns true if the resumed run has no updates left.
bool IsFinished(const RunStart& start);

// Fails if the model is not that of the checkpoint. Call it before other checks of the model, whose errors would
// mislead.
absl::Status CheckModelOfCheckpoint(const OnnxModel& model, RunStart* start);

// Opens the folder of the run. Fails if the run would overwrite a file that it reads.
absl::StatusOr<std::unique_ptr<OutputFolder>> OpenRunFolder(const RunStart& start);

// Returns what a Recorder needs, with config.flags holding every decision. The caller sets display, resumed, trace and
// order.
RecordedRun DescribeRun(OutputFolder& folder, TrainingRun* run);

// Restores the session from the checkpoint, and adds notes on settings that may change the rounding. `resolved`: the
// result of ResolveConfig.
absl::Status ResumeSession(const TrainConfig& resolved, const std::string& fingerprint, RunStart* start,
                           TrainingRun* run);

}  // namespace onnxtrain
