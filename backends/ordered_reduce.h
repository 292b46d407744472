// Sums slices of memory over the ranks on a thread of its own, while the caller computes the slices that follow.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

// Between Begin and Finish the thread alone sums. All ranks reduce slices of the same sizes, in the order of the
// slices, whatever order they become ready in.
//
// Thread-compatible, but Ready may be called while the thread works.
class OrderedReduce {
 public:
  // Replaces a slice with its sum over all ranks.
  using Sum = std::function<absl::Status(std::span<std::byte> slice)>;
  // The memory of the slices must outlive it.
  OrderedReduce(Sum sum, std::vector<std::span<std::byte>> slices);
  ~OrderedReduce();
  OrderedReduce(const OrderedReduce&) = delete;
  OrderedReduce& operator=(const OrderedReduce&) = delete;

  // Begins the sums of one update. No slice is ready.
  void Begin();
  // The slice may be summed: nobody else touches it until Finish returns.
  void Ready(size_t slice);
  // Waits until all slices, each of which counts as ready from now on, are summed. Returns the first error; what the
  // slices hold then is undefined. With an error, the sums that have not begun are passed over.
  absl::Status Finish(const absl::Status& error = absl::OkStatus());

  // Waits until so many slices, which are ready, are summed, or passed over after an error.
  void Await(size_t slices);
  // How many slices are summed. Any thread.
  size_t summed();
  // Seconds that the thread has spent in collectives since the last Begin. Call it after Finish.
  double seconds() const { return seconds_; }

 private:
  void Loop();
  bool MayReduce() const { return next_ < slices_.size() && ready_[next_]; }

  const Sum sum_;
  const std::vector<std::span<std::byte>> slices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;  // by slice
  size_t next_ = 0;          // the slices before it are summed
  bool ends_ = false;
  absl::Status status_;
  double seconds_ = 0;
  std::thread thread_;
};

}  // namespace onnxtrain
