// Names what limited a run, and the setting that changes it.
#pragma once

#include <string>

#include "optim/loop/trainer.h"

namespace onnxtrain {

struct RunConditions {
  int threads = 1;
  double busy_cpus = 0;        // mean over the loop
  double queued_share = 0;     // as in ResourceReading, over the loop
  bool full_precision = true;  // float32
  double recompute_share = 0;  // of the arithmetic, spent on recomputing activations
};

struct Diagnosis {
  std::string limit;  // "duration", "data", "overhead", "evaluation", "checkpoints", "compilation", "machine",
                      // "memory", "threads", "compute"
  std::string text;   // one sentence; fields in backquotes
};

// Judges by the measured shares of the wall time. A limit of "" where nothing was trained.
Diagnosis Diagnose(const TrainResult& result, const RunConditions& conditions);

}  // namespace onnxtrain
