// Prints progress: one aligned line per event.
#pragma once

#include <cstdio>
#include <string>

#include "optim/loop/trainer.h"

namespace onnxtrain {

struct ProgressContext {
  int64_t total_steps = 0;  // updates of the whole run; 0: unknown
  bool has_accuracy = false;
  int64_t tokens_per_sample = 0;  // above 0: the rate is in tokens
  // Off a terminal, skips a step that comes less than 1/20 of the run and less than a minute after the last printed
  // step. Ignored if total_steps is unknown.
  bool sparse = false;
};

// Returns " 1200/5625  epoch  0.64  eta     00:32  loss 0.2313  acc 93.12%  lr 9.8e-04  |g|  0.82   12,345 samples/s
//   wait  1%  cpu 1.9  mem 1.2 GiB", without a newline. `wait` is the share of time spent waiting for data, `cpu` the
// number of busy CPUs, `mem` the memory of the process. `seconds_left` below 0: unknown.
std::string ProgressLine(const TrainEvent& event, const ProgressContext& context, double seconds_left = -1);

// Prints steps as one line that is overwritten and clipped to the width of a terminal, or as plain lines elsewhere.
// Evaluations are never overwritten.
class Console {
 public:
  Console(std::FILE* out, const ProgressContext& context);
  ~Console() { Finish(); }
  void Show(const TrainEvent& event);
  // Ends an open line. Call before writing to the same stream.
  void Finish();

 private:
  double SecondsLeft(const TrainEvent& event);
  bool LeavesOut(const TrainEvent& event) const;

  std::FILE* out_;
  ProgressContext context_;
  bool terminal_;
  bool open_ = false;  // the last line has no newline yet
  int64_t first_step_ = -1, printed_step_ = 0;
  double first_seconds_ = 0, printed_seconds_ = 0;
};

}  // namespace onnxtrain
