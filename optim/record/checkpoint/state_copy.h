// The state of a session as the content of a checkpoint: views of it, or a copy in host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "optim/step/session.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
