// The progress line: one aligned line per report.
#pragma once

#include <cstdio>
#include <string>

#include "optim/trainer.h"

namespace onnxtrain {

struct ProgressContext {
  int64_t total_steps = 0;  // of the whole run; 0: not known
  bool has_accuracy = false;
};

// " 1200/5625  epoch  0.64  loss 0.2313  acc 93.12%  lr 9.8e-04  |g|  0.82   12,345 samples/s  eta 0:32", without
// newline.
std::string ProgressLine(const TrainEvent& event, const ProgressContext& context);

// Writes steps as lines that overwrite each other on a terminal and as plain lines elsewhere; evaluations always stay.
class Console {
 public:
  Console(std::FILE* out, const ProgressContext& context);
  ~Console() { Finish(); }
  void Show(const TrainEvent& event);
  // Ends a line that would be overwritten, before anybody else writes.
  void Finish();

 private:
  std::FILE* out_;
  ProgressContext context_;
  bool terminal_;
  bool open_ = false;  // a step line stands there without newline
};

}  // namespace onnxtrain
