// Prints progress: one aligned line per event.
#pragma once

#include <cstdio>
#include <string>

#include "optim/loop/trainer.h"

namespace onnxtrain {

struct ProgressContext {
  int64_t total_steps = 0;  // of the whole run; 0: not known
  bool has_accuracy = false;
  int64_t tokens_per_sample = 0;  // above 0: the rate is in tokens
};

// Returns " 1200/5625  epoch  0.64  eta     00:32  loss 0.2313  acc 93.12%  lr 9.8e-04  |g|  0.82   12,345 samples/s
//   wait  1%  cpu 1.9  mem 1.2 GiB", without a newline: the share of the time that the step waited for data, the CPUs
// that were busy, the memory of the process. `seconds_left` below 0: not known.
std::string ProgressLine(const TrainEvent& event, const ProgressContext& context, double seconds_left = -1);

// Prints steps as one line that is overwritten on a terminal, cut to its width, and as plain lines elsewhere.
// Evaluations keep their line.
class Console {
 public:
  Console(std::FILE* out, const ProgressContext& context);
  ~Console() { Finish(); }
  void Show(const TrainEvent& event);
  // Ends an open line. Call before writing to the same stream.
  void Finish();

 private:
  double SecondsLeft(const TrainEvent& event);

  std::FILE* out_;
  ProgressContext context_;
  bool terminal_;
  bool open_ = false;  // the last line has no newline yet
  int64_t first_step_ = -1;
  double first_seconds_ = 0;
};

}  // namespace onnxtrain
