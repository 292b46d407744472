#include "optim/plan/batch_size.h"

#include <algorithm>
#include <map>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<SessionMemory> PlannedMemory(std::shared_ptr<PreparedModels> models, Backend& backend,
                                            SessionOptions options, int64_t micro_batch, int64_t global_batch) {
  options.plan_only = true;
  options.micro_batch = micro_batch;
  ASSIGN_OR_RETURN(const auto session, Session::Create(std::move(models), &backend, std::move(options)));
  RETURN_IF_ERROR(session->Plan(global_batch));
  return session->memory();
}

namespace {

class Fit {
 public:
  Fit(const std::function<absl::StatusOr<int64_t>(int64_t)>& peak, int64_t limit) : peak_(peak), limit_(limit) {}

  absl::StatusOr<bool> Fits(int64_t size) {
    ASSIGN_OR_RETURN(const int64_t bytes, peak_(size));
    known_[size] = bytes;
    return bytes <= limit_;
  }

  // Extrapolates the line through the two sizes nearest to the limit.
  int64_t Guess() const {
    auto above = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.second > limit_; });
    if (above == known_.end()) --above;
    if (above == known_.begin()) ++above;
    const auto below = std::prev(above);
    const double slope =
        static_cast<double>(above->second - below->second) / static_cast<double>(above->first - below->first);
    if (slope <= 0) return above->first * 2;
    return below->first + static_cast<int64_t>(std::min(1e15, static_cast<double>(limit_ - below->second) / slope));
  }

 private:
  const std::function<absl::StatusOr<int64_t>(int64_t)>& peak_;
  const int64_t limit_;
  std::map<int64_t, int64_t> known_;
};

}  // namespace

absl::StatusOr<int64_t> LargestFitting(const std::function<absl::StatusOr<int64_t>(int64_t)>& peak, int64_t limit,
                                       int64_t most) {
  Fit fit(peak, limit);
  int64_t good = 0, bad = most + 1;
  for (int64_t first : {int64_t{1}, std::min<int64_t>(4, most)}) {
    ASSIGN_OR_RETURN(const bool fits, fit.Fits(first));
    (fits ? good : bad) = first;
    if (!fits && good == 0) return 0;
    if (!fits || most == 1) break;
  }
  // Guesses from the line, one below and one above the limit where it is straight; then bisects.
  for (int guesses = 0; bad - good > 1; ++guesses) {
    constexpr int kGuesses = 6;
    const int64_t guess = guesses < kGuesses ? fit.Guess() + (guesses % 2) : good + (bad - good) / 2;
    const int64_t size = std::clamp(guess, good + 1, bad - 1);
    ASSIGN_OR_RETURN(const bool fits, fit.Fits(size));
    (fits ? good : bad) = size;
  }
  return good;
}

}  // namespace onnxtrain
