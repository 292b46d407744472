#include "backends/collectives.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::unique_ptr<Collectives>> NewGroupOfAll(Collectives& ranks, std::string_view name) {
  std::vector<int> all(ranks.size());
  std::iota(all.begin(), all.end(), 0);
  return ranks.NewGroup(name, all);
}

absl::Status AllReduce(Collectives& ranks, std::string_view what, std::span<double> values, Reduction op) {
  return ranks.AllReduce(what, DType::kFloat64, std::as_writable_bytes(values), op);
}

absl::StatusOr<std::vector<std::string>> AllGatherText(Collectives& ranks, std::string_view what,
                                                       std::string_view own) {
  const int64_t size = std::ssize(own);
  std::vector<int64_t> sizes(ranks.size());
  RETURN_IF_ERROR(ranks.AllGather(what, std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes))));
  const int64_t most = *std::ranges::max_element(sizes);
  std::vector<std::string> texts(ranks.size());
  if (most == 0) return texts;
  std::string padded(own), all(static_cast<size_t>(most) * ranks.size(), '\0');
  padded.resize(most);
  RETURN_IF_ERROR(ranks.AllGather(what, std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all))));
  for (int r = 0; r < ranks.size(); ++r) texts[r] = all.substr(r * most, sizes[r]);
  return texts;
}

absl::StatusOr<std::string> BroadcastText(Collectives& ranks, std::string_view what, std::string text) {
  int64_t size = std::ssize(text);
  RETURN_IF_ERROR(ranks.Broadcast(what, 0, std::as_writable_bytes(std::span(&size, 1))));
  text.resize(size);
  if (size > 0) RETURN_IF_ERROR(ranks.Broadcast(what, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

namespace {

// Returns the first rank whose error is not kUnavailable, or else the first with any error. `texts` has the status code
// and message of each rank.
ptrdiff_t FindFailed(const std::vector<std::string>& texts) {
  const auto is_cause = [](const std::string& t) {
    return t[0] != 0 && static_cast<absl::StatusCode>(t[0]) != absl::StatusCode::kUnavailable;
  };
  auto failed = std::ranges::find_if(texts, is_cause);
  if (failed == texts.end()) failed = std::ranges::find_if(texts, [](const std::string& t) { return t[0] != 0; });
  return failed - texts.begin();
}

}  // namespace

absl::Status AgreeOnStatus(Collectives& ranks, std::string_view what, const absl::Status& own) {
  auto code = static_cast<double>(own.code());
  RETURN_IF_ERROR(AllReduce(ranks, what, std::span(&code, 1), Reduction::kMax));
  if (code == 0) return absl::OkStatus();
  const std::string text(1, static_cast<char>(own.code()));
  ASSIGN_OR_RETURN(const auto texts, AllGatherText(ranks, what, text + std::string(ToStd(own.message()))));
  const auto failed = FindFailed(texts);
  if (failed == ranks.rank()) return own;
  return {static_cast<absl::StatusCode>(texts[failed][0]), StrCat("rank ", failed, ": ", texts[failed].substr(1))};
}

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

// Sums ready slices in order until the object is destroyed. After an error the group is unusable, so the remaining
// slices are skipped.
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
