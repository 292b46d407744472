// The graphs of a stage's programs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "optim/parallel/pipeline/stage.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {

// Copies a part of a graph into a graph of its own.

// A value of another part, which becomes an input.
struct CutValue {
  ValueId value;
  InputKind kind;
  std::string name;
};

struct ExtractedGraph {
  Graph graph;                  // without outputs
  std::vector<ValueId> values;  // by value of the whole graph; kNoValue where the part has none
};

// Copies the nodes with `keep` and the graph inputs that they read, feeds first. `cuts` has every other value that they
// read; `wanted` are inputs that are copied though no node reads them.
ExtractedGraph Extract(const Graph& whole, const std::vector<bool>& keep, const std::vector<CutValue>& cuts,
                       const std::vector<ValueId>& wanted);

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
