// Saves a session while it trains: a background thread writes a copy of the state, or the training thread writes the
// state in place. Several ranks write one checkpoint together over separate connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "optim/record/checkpoint/save_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Connections between ranks for saving, separate from those of the training.
class SavingGroup {
 public:
  // Called by all ranks of `training`, which must outlive the group.
  static absl::StatusOr<std::unique_ptr<SavingGroup>> Create(Collectives& training);

  // Reconnects all ranks if an operation failed on any of them, for example by a time-out. Called by all ranks
  // together, while no thread uses this group or that of the training.
  absl::Status Renew();

  // Valid until Renew.
  Collectives& ranks() { return *ranks_; }

 private:
  SavingGroup(Collectives& training, std::unique_ptr<Collectives> ranks)
      : training_(training), ranks_(std::move(ranks)) {}

  Collectives& training_;
  std::unique_ptr<Collectives> ranks_;
  int64_t renewals_ = 0;
};

// Writes one checkpoint of all ranks to a shared folder: every rank writes its parts, then rank 0 completes it. Called
// by all ranks. `ready`: an error of this rank that prevents the save. All ranks return the same status; after an error
// no part of the new checkpoint remains.
absl::Status WriteTogether(Collectives& ranks, const absl::Status& ready, const CheckpointContent& content,
                           CheckpointFolder* folder);

// Returns true if `path`, which may differ by rank, is the same writable folder on all ranks. Called by all ranks:
// rank 0 writes a random text, which the others look for.
absl::StatusOr<bool> IsSharedFolder(Collectives& ranks, const std::string& path);

// Appends views of the tensors of a session whose state is in host memory; the next update changes them. `parts`: as in
// StateCopy.
absl::Status AppendViews(Session& session, bool parts, CheckpointContent* content);

// A copy of a session's state in host memory.
class StateCopy {
 public:
  // `threads`: number of threads that copy; more than one only if device memory is host memory. `parts`: copies the
  // parts that this rank writes (Session::StateParts) instead of the whole state.
  StateCopy(int threads, bool parts) : threads_(threads), parts_only_(parts) {}

  // Allocates the memory early; otherwise Update does.
  absl::Status Reserve(Session& session);
  // Touches all pages of the memory, since page faults would double the time of the first copy. Callable on any thread
  // between Reserve and Update.
  void Touch();
  // Waits for queued work, then copies the state.
  absl::Status Update(Session& session);
  // Appends tensors that share the memory of the copy.
  void AppendTo(CheckpointContent* content) const;

 private:
  // Bytes [begin, end) of tensors_[tensor].
  struct Range {
    size_t tensor, begin, end;
  };
  absl::Status Read(const Range& range);
  void SplitAmongThreads();

  const int threads_;
  const bool parts_only_;
  std::vector<StateTensor> tensors_;
  std::vector<HostTensor> copies_;         // by index of tensors_
  std::vector<std::vector<Range>> parts_;  // one per thread, of about equal bytes
};

struct CheckpointOptions {
  int64_t keep_last = 2;                  // newest checkpoints; at least 1
  int64_t keep_best = 0;                  // checkpoints of the best evaluations; the link `best` names the best one
  bool compressed = false;                // as in CheckpointContent
  int copy_threads = 1;                   // as in StateCopy
  SaveMethod method = SaveMethod::kCopy;  // of saves that updates follow; kInPlace: the state is in host memory
  bool on_host = false;                   // the state is in host memory, so that the last save needs no copy
  // Connects ranks that shard the state and share a folder: each has a writer, all call Save at the same updates and
  // write one checkpoint together. The writing thread uses it exclusively; Save renews it through the group of the
  // training. Null: this process writes alone.
  SavingGroup* group = nullptr;
};

// Writes checkpoints and removes old ones. Called from the training thread.
class CheckpointWriter {
 public:
  // `folder` must outlive the writer. `first_step`: number of updates at which the run starts or resumes; the best
  // checkpoints up to it count for `keep_best`.
  CheckpointWriter(CheckpointFolder* folder, const CheckpointOptions& options, int64_t first_step);
  ~CheckpointWriter() { Join(); }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Waits for the previous save and returns its error, once. Then copies the state and writes the copy in the
  // background, or writes in place before it returns; errors of this save are left to the next call or Finish. `best`:
  // this step has the best evaluation so far. `last`: no update follows. A successful save removes checkpoints that
  // exceed keep_last and keep_best, and those of later steps, which an earlier run left.
  absl::Status Save(Session& session, int64_t step, std::string state, bool best, bool last);
  // Marks the checkpoint of a step that Save wrote as the best one.
  absl::Status MarkBest(int64_t step);
  // Waits for the current save and returns its error, once.
  absl::Status Finish();
  // Waits for the current save, and leaves its error to the next call.
  void Wait() { Join(); }

  // Records the spans of the writing thread; null: none. Call it before the first Save.
  void SetTrace(Trace* trace) { trace_ = trace; }
  // The step of the last Save; -1: none.
  int64_t last_step() const { return last_step_; }
  // Fails if the disk has no room for a checkpoint and a model of `model_bytes`.
  absl::Status CheckRoom(Session& session, int64_t model_bytes) const;
  // Removes the oldest checkpoints until the disk has room for `bytes`, except the newest complete one and the best
  // ones. Save calls it, too. Call Finish first.
  absl::Status MakeRoom(int64_t bytes);
  // The step of the newest complete checkpoint, or `first_step` if there is none. Valid after Finish.
  int64_t newest_written() const { return newest_written_; }
  // Number of checkpoints removed for lack of room despite keep_last. Valid after Finish.
  int64_t removed_early() const { return removed_early_; }
  // Allocates the memory of the copy before the first step, if saves copy. A thread touches its pages.
  absl::Status Reserve(Session& session);

 private:
  bool leads() const { return options_.group == nullptr || options_.group->ranks().rank() == 0; }
  absl::Status ListWhole(Session& session, CheckpointContent* content) const;
  absl::Status TakeState(Session& session, bool in_place, CheckpointContent* content);
  absl::Status Write(const absl::Status& taken, const CheckpointContent& content);
  absl::Status WriteAndRotate(const absl::Status& taken, const CheckpointContent& content, bool best);
  absl::Status LinkBest(int64_t step);
  absl::Status Rotate(int64_t written);
  void Join();

  CheckpointFolder& folder_;
  const CheckpointOptions options_;
  StateCopy copy_;
  std::vector<int64_t> best_;  // steps, the best one last
  int64_t last_step_ = -1;
  int64_t newest_written_;  // this and the next: owned by the thread until it is joined
  int64_t removed_early_ = 0;
  Trace* trace_ = nullptr;
  absl::Status status_;  // written by the thread until it is joined
  std::thread thread_;
};

}  // namespace onnxtrain
