// Starts the ranks of a distributed run together: rank 0 makes every automatic decision, the others repeat them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/parallel/data_parallel.h"
#include "optim/plan/training_run.h"
#include "optim/record/checkpoint/checkpoint_writer.h"
#include "optim/record/checkpoint/resume.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain::cli {

class RankGroup {
 public:
  // Connects to the other ranks.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Join(const Rank& rank, const TrainConfig& config);
  // Sets the same number of threads on all ranks. Fails if flags that affect the result differ between the ranks.
  absl::Status Compare(const TrainConfig& config);

  const Rank& rank() const { return rank_; }

  // Sends the result of rank 0's preparation, `ready`, to the others. `state`: where the run starts or resumes; null if
  // no updates are left. Returns `ready`, or the error of another rank. On success, distributes the session and sets
  // run->options.peers. Called on rank 0.
  absl::Status Lead(const absl::Status& ready, const RunState* state, TrainingRun* run);

  // Waits for Lead of rank 0. Returns null if no updates are left. Called on the other ranks.
  absl::StatusOr<std::unique_ptr<RunState>> AwaitStart();
  // Starts from the state of rank 0. `ready`: result of this rank's preparation. Called on the other ranks.
  absl::Status Follow(const absl::Status& ready, const RunState& state, TrainingRun* run);

  // Peak resident bytes before the communication library was loaded.
  int64_t resident_before() const { return resident_before_; }

  // Returns true if this rank reports the loss of rank 0.
  bool reports() const { return ranks_->reports(); }

  // Returns the group in which ranks that shard the state and share a folder write checkpoints, once the run begins;
  // null if rank 0 writes alone.
  SavingGroup* checkpoints() const { return checkpoints_.get(); }

  // Returns rank 0's `own`, its result of opening the files of the run, on all ranks. Called by all ranks.
  absl::Status AgreeToTrain(const absl::Status& own);

  // Waits for the exit code of rank 0 and returns it. Returns `own` if the ranks did not end together or after the
  // time-out, and kFailed if rank 0 is lost. Called by all ranks at their end.
  int ShareExitCode(int own);

 private:
  RankGroup(const Rank& rank, double timeout, int64_t resident_before, std::unique_ptr<Collectives> ranks)
      : rank_(rank), timeout_(timeout), resident_before_(resident_before), ranks_(std::move(ranks)) {}
  absl::Status CompareEvalData(const TrainingRun& run);
  absl::Status ShareState(const SessionCounters& counters, Session* session);
  absl::Status Begin(const absl::Status& ready, const RunState& state, TrainingRun* run);
  absl::Status MeetForCheckpoints(const TrainConfig& config, TrainingRun* run);

  const Rank rank_;
  const double timeout_;  // seconds
  const int64_t resident_before_;
  std::unique_ptr<Collectives> ranks_;
  std::unique_ptr<DataParallel> data_parallel_;
  std::unique_ptr<SavingGroup> checkpoints_;
};

// Trains as a rank other than 0 with the decisions of rank 0, and returns the exit code. Writes only a log in the
// folder of the run, including errors, which rank 0 prints.
int TrainAsFollower(const TrainConfig& given, RankGroup& group, const SignalFlags& signals);

}  // namespace onnxtrain::cli
