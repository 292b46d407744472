// The graphs of a stage's programs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/parallel/pipeline/stage.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {

// What a micro-batch is computed by. The last stage has its loss at once, and computes both passes in one program.
struct StageGraphs {
  Graph forward;
  Graph backward;  // without outputs where there is nothing to do
  // Values that the backward pass reads: outputs of `forward`, inputs of `backward`.
  std::vector<std::pair<std::string, Type>> saved;
};

struct StageMicroOptions {
  bool first = true;    // as MicroOptions
  bool scaled = false;  // as MicroOptions
};

absl::StatusOr<StageGraphs> BuildStageMicro(const Stage& stage, const LossSpec& loss, int64_t batch,
                                            const StageMicroOptions& options);

// Of an evaluation: sends what later stages read; the last one adds up losses and metrics (BuildEval).
absl::StatusOr<Graph> BuildStageEval(const Stage& stage, const LossSpec& loss, int64_t batch,
                                     const std::vector<Metric>& metrics);

}  // namespace onnxtrain
