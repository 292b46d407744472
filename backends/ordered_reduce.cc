#include "backends/ordered_reduce.h"

#include <chrono>
#include <utility>

namespace onnxtrain {

OrderedReduce::OrderedReduce(Sum sum, std::vector<std::span<std::byte>> slices)
    : sum_(std::move(sum)), slices_(std::move(slices)), ready_(slices_.size()), next_(slices_.size()), thread_([this] {
        Loop();
      }) {}

OrderedReduce::~OrderedReduce() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OrderedReduce::Begin() {
  const std::lock_guard lock(mutex_);
  ready_.assign(slices_.size(), false);
  next_ = 0;
  status_ = absl::OkStatus();
  seconds_ = 0;
}

void OrderedReduce::Ready(size_t slice) {
  {
    const std::lock_guard lock(mutex_);
    ready_[slice] = true;
    if (slice != next_) return;
  }
  changed_.notify_all();
}

absl::Status OrderedReduce::Finish(const absl::Status& error) {
  std::unique_lock lock(mutex_);
  status_.Update(error);
  ready_.assign(slices_.size(), true);
  changed_.notify_all();
  changed_.wait(lock, [&] { return next_ == slices_.size(); });
  return status_;
}

void OrderedReduce::Await(size_t slices) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return next_ >= slices; });
}

size_t OrderedReduce::summed() {
  const std::lock_guard lock(mutex_);
  return next_;
}

// After an error the group is unusable: the slices that are left are passed over.
void OrderedReduce::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || MayReduce(); });
    if (ends_) return;
    const std::span<std::byte> slice = slices_[next_];
    if (status_.ok()) {
      lock.unlock();
      const auto begin = std::chrono::steady_clock::now();
      const absl::Status summed = sum_(slice);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      lock.lock();
      status_.Update(summed);
      seconds_ += seconds;
    }
    ++next_;
    changed_.notify_all();
  }
}

}  // namespace onnxtrain
