// Prints progress: one aligned line per event.
#pragma once

#include <cstdio>
#include <string>

#include "optim/trainer.h"

namespace onnxtrain {

struct ProgressContext {
  int64_t total_steps = 0;  // of the whole run; 0: not known
  bool has_accuracy = false;
};

// Returns " 1200/5625  epoch  0.64  loss 0.2313  acc 93.12%  lr 9.8e-04  |g|  0.82   12,345 samples/s  eta 0:32",
// without a newline.
std::string ProgressLine(const TrainEvent& event, const ProgressContext& context);

// Prints steps as one line that is overwritten on a terminal, and as plain lines elsewhere. Evaluations keep their
// line.
class Console {
 public:
  Console(std::FILE* out, const ProgressContext& context);
  ~Console() { Finish(); }
  void Show(const TrainEvent& event);
  // Ends an open line. Call before writing to the same stream.
  void Finish();

 private:
  std::FILE* out_;
  ProgressContext context_;
  bool terminal_;
  bool open_ = false;  // the last line has no newline yet
};

}  // namespace onnxtrain
