#include "frontend/data/load/worker_climber.h"

#include <algorithm>

namespace onnxtrain {
namespace {

constexpr int64_t kBatches = 16;  // a window has at least these
constexpr double kSeconds = 0.5;  // and lasts as long
constexpr double kWaits = 0.05;   // a smaller share of the time is no reason for another thread
constexpr double kGain = 1.05;    // times as many batches/s, or the thread is not worth its core

}  // namespace

void WorkerClimber::Begin(double now, double waited) {
  begun_ = true;
  batches_ = 0;
  begin_ = now;
  waited_ = waited;
}

int WorkerClimber::Observe(double now, double waited) {
  if (!climbing_) return workers_;
  if (!begun_) Begin(now, waited);
  const double seconds = now - begin_;
  if (batches_++ < kBatches || seconds < kSeconds) return workers_;
  const double rate = static_cast<double>(batches_) / seconds, waits = (waited - waited_) / seconds;
  if (added_ && rate < kGain * rate_) {
    --workers_;
    climbing_ = false;
    return workers_;
  }
  added_ = waits > kWaits && workers_ < max_workers_;
  workers_ += added_ ? 1 : 0;
  climbing_ = workers_ < max_workers_ || added_;
  rate_ = rate;
  Begin(now, waited);
  return workers_;
}

}  // namespace onnxtrain
