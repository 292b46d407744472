// Saves a session while it trains: from a copy of its state, which is written to disk on a thread of its own, or from
// the state itself; with several ranks, together with the others, on connections of their own.
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

class SavingGroup {
 public:
  // Called by all ranks of `training`, which must outlive the group.
  static absl::StatusOr<std::unique_ptr<SavingGroup>> Create(Collectives& training);

  // Called by all ranks together, while no thread uses this group or that of the training: where an operation has
  // failed on any rank, as one that has waited too long for the disk of another, all meet again.
  absl::Status Renew();

  // Until Renew.
  Collectives& ranks() { return *ranks_; }

 private:
  SavingGroup(Collectives& training, std::unique_ptr<Collectives> ranks)
      : training_(training), ranks_(std::move(ranks)) {}

  Collectives& training_;
  std::unique_ptr<Collectives> ranks_;
  int64_t renewals_ = 0;
};

// Called by all ranks, with a folder that all of them see. Every rank writes its parts at the same time; rank 0
// completes the checkpoint once all have. `ready`: may this rank begin? All ranks return alike: the error of one that
// could not begin or write, of which nothing is left then but the older checkpoints.
absl::Status WriteTogether(Collectives& ranks, const absl::Status& ready, const CheckpointContent& content,
                           CheckpointFolder* folder);

// Called by all ranks with the folder that rank 0 writes to, by the name that each has for it: do all see the same one,
// and may they write to it? Rank 0 writes a random text, which the others look for.
absl::StatusOr<bool> IsSharedFolder(Collectives& ranks, const std::string& path);

// The state of a session as the content of a checkpoint: views of it, or a copy in host memory.

// Appends views of the tensors of a session whose state is in host memory: they show its next update. `parts`: as in
// StateCopy.
absl::Status AppendViews(Session& session, bool parts, CheckpointContent* content);

class StateCopy {
 public:
  // `threads`: that read at the same time; more than one only where device memory is host memory. `parts`: of what
  // this rank writes (Session::StateParts) in place of the whole state.
  StateCopy(int threads, bool parts) : threads_(threads), parts_only_(parts) {}

  // Allocates the memory, which Update does otherwise.
  absl::Status Reserve(Session& session);
  // Writes to all of the memory, which the system gives page by page: the first copy would take twice as long. On any
  // thread, after Reserve and before Update.
  void Touch();
  // Waits for queued work, and copies.
  absl::Status Update(Session& session);
  // Appends the tensors, which share the memory of the copy.
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
  std::vector<std::vector<Range>> parts_;  // of about the same number of bytes, one for each thread
};

struct CheckpointOptions {
  int64_t keep_last = 2;                  // newest checkpoints; at least 1
  int64_t keep_best = 0;                  // of the best evaluations; the best of all has the link `best`
  bool compressed = false;                // as in CheckpointContent
  int copy_threads = 1;                   // as in StateCopy
  SaveMethod method = SaveMethod::kCopy;  // of saves that updates follow; kInPlace: the state is in host memory
  bool on_host = false;                   // the state is in host memory, so that the last save needs no copy
  // Of ranks that divide the state and see the same folder: all have a writer, call Save alike, and write one
  // checkpoint together. The thread that writes uses it, and nobody else meanwhile; Save renews it, for which it uses
  // the group of the training. Null: this process writes alone.
  SavingGroup* group = nullptr;
};

class CheckpointWriter {
 public:
  // `folder` must outlive it; `first_step`: the update that the run continues after. The best checkpoints up to it
  // count for `keep_best`.
  CheckpointWriter(CheckpointFolder* folder, const CheckpointOptions& options, int64_t first_step);
  ~CheckpointWriter() { Join(); }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Copies the session's state and returns, and the writing goes on; in place, returns when it is written, with its
  // failure left to Finish. At most one checkpoint is being written: waits for the one before, and returns its failure,
  // once. `best`: no evaluation was better than that of this step. `last`: no update follows. Afterwards, checkpoints
  // of later steps, which this run has not made, are removed as well as those that are not to be kept.
  absl::Status Save(Session& session, int64_t step, std::string state, bool best, bool last);
  // Marks the checkpoint of a step that Save has written.
  absl::Status MarkBest(int64_t step);
  // Waits. Returns the failure of the last one, once.
  absl::Status Finish();
  // Waits, and leaves the failure to the next call.
  void Wait() { Join(); }

  // Records what the thread does; null: nothing. Before the first Save.
  void SetTrace(Trace* trace) { trace_ = trace; }
  // The step of the last Save; -1: none.
  int64_t last_step() const { return last_step_; }
  // Fails where the disk has no room for a checkpoint and `model_bytes` of a model beside it.
  absl::Status CheckRoom(Session& session, int64_t model_bytes) const;
  // Removes the oldest checkpoints until the disk has room for `bytes`, but neither the newest one that is whole nor
  // the best ones. Save does this by itself. Not while a checkpoint is being written (Finish).
  absl::Status MakeRoom(int64_t bytes);
  // The step of the newest checkpoint that is whole; that of the start where none is. After Finish.
  int64_t newest_written() const { return newest_written_; }
  // Checkpoints that were removed to make room although they were to be kept. After Finish.
  int64_t removed_early() const { return removed_early_; }
  // Allocates the memory of the copy, where saves are to make one, before the first step. A thread makes the system
  // give it.
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
  int64_t newest_written_;     // the step of the newest checkpoint that is whole
  int64_t removed_early_ = 0;  // this and the one above: of the thread until it is joined
  Trace* trace_ = nullptr;
  absl::Status status_;  // written by the thread until it is joined
  std::thread thread_;
};

}  // namespace onnxtrain
