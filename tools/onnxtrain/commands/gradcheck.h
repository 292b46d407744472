// Gradients against central differences, in float64.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"

namespace onnxtrain::cli {

struct GradcheckRow {
  std::string parameter;
  int64_t checked = 0;
  double worst = 0;  // relative error of the worst coordinate
  int64_t at = 0;    // its index
  double analytic = 0, numeric = 0;
};

struct GradcheckResult {
  std::vector<GradcheckRow> rows;  // worst first
  // Central differences of a function with kinks (Relu, MaxPool) are wrong where a step crosses one, so each coordinate
  // has several steps to agree with.
  static constexpr double kTolerance = 1e-4;
  bool passed() const { return rows.empty() || rows.front().worst <= kTolerance; }
};

// Imports the model in float64 on `backend` and checks `coordinates` elements of every trained parameter (the steepest,
// and random ones by the seed) on the first options.micro_batch samples.
absl::StatusOr<GradcheckResult> Gradcheck(std::shared_ptr<PreparedModels> models, Backend& backend,
                                          SessionOptions options, TrainData data, int64_t coordinates);

std::string Page(const GradcheckResult& result);

}  // namespace onnxtrain::cli
