// How the ranks of a distributed run begin together: rank 0 makes every automatic decision, the others repeat them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/parallel/data_parallel.h"
#include "optim/plan/training_run.h"
#include "optim/record/checkpoint/checkpoint_writer.h"
#include "optim/record/checkpoint/run_state.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/ranks.h"

namespace onnxtrain::cli {

class RankGroup {
 public:
  // Meets the other ranks.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Join(const Rank& rank, const TrainConfig& config);
  // Has all ranks use the same number of threads. Fails where one was started with other flags.
  absl::Status Compare(const TrainConfig& config);

  const Rank& rank() const { return rank_; }

  // Of rank 0: tells the others how its preparations have ended. `state`: of a run that begins or goes on; null where
  // nothing is left to do. Returns `ready`, or the error of a rank that could not begin alike. Then the session is
  // distributed, and run->options.peers set.
  absl::Status Lead(const absl::Status& ready, const RunState* state, TrainingRun* run);

  // Of the other ranks: waits for rank 0. Null where nothing is to be done.
  absl::StatusOr<std::unique_ptr<RunState>> AwaitStart();
  // Continues from the state of rank 0, where `ready` says that this rank could prepare the run.
  absl::Status Follow(const absl::Status& ready, const RunState& state, TrainingRun* run);

  // The most memory that this process had before it loaded the library of communication.
  int64_t resident_before() const { return resident_before_; }

  // Is it this rank that has to say that rank 0 is gone?
  bool reports() const { return ranks_->reports(); }

  // Of ranks that divide the state and see one folder, to write checkpoints together, once the run begins; null: rank 0
  // writes all of it.
  SavingGroup* checkpoints() const { return checkpoints_.get(); }

  // Of all ranks, once rank 0 has opened the files of the run: returns its error, `own`, on each.
  absl::Status AgreeToTrain(const absl::Status& own);

  // Of all ranks at their end: returns the exit code of rank 0, which the others wait for. Returns `own` where the
  // ranks have not ended together or rank 0 takes longer than the time-out, and kFailed where it has gone.
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

// Training as a rank other than 0 of a distributed run.

// Repeats what rank 0 has decided and trains with it. Writes nothing but a log in the folder of the run, into which
// errors go too: rank 0 prints them. Returns the exit code.
int TrainAsFollower(const TrainConfig& given, RankGroup& group, const SignalFlags& signals);

}  // namespace onnxtrain::cli
