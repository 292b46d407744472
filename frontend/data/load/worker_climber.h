// How many threads of a loader are worth their cores.
#pragma once

#include <cstdint>

namespace onnxtrain {

// Adds one thread after the other as long as the consumer waits for batches, and takes the last one back where it did
// not make batches come faster: the cores then belong to the consumer.
class WorkerClimber {
 public:
  WorkerClimber(int workers, int max_workers) : workers_(workers), max_workers_(max_workers) {}

  // Called with each batch: the time of day, and how long the consumer has waited so far, in seconds. Returns the
  // number of threads from now on.
  int Observe(double now, double waited);

 private:
  void Begin(double now, double waited);

  int workers_, max_workers_;
  int64_t batches_ = 0;  // of this window; the first one of all is not counted, in which threads start
  bool begun_ = false, climbing_ = true, added_ = false;
  double begin_ = 0, waited_ = 0, rate_ = 0;  // of this window; batches/s of the last one
};

}  // namespace onnxtrain
