// The part of a model that one rank of a pipeline computes, and the graphs of its programs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "optim/parallel/pipeline/placement.h"
#include "optim/step/prepared_models.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {

// Prefix of feeds that receive values from another stage.
inline constexpr char kTransferPrefix[] = "$transfer:";

// A value of an earlier stage that a later stage reads. The stages between them forward it.
struct Boundary {
  std::string name;  // of the feed that receives it, the same on all stages
  Type type;
  bool differentiable = false;  // depends on trained weights: its gradient is sent back
};
std::string SentName(const Boundary& boundary);  // name of the output that is sent to the next stage
std::string SeedName(const Boundary& boundary);  // name of the feed that receives its gradient

struct Stage {
  int index = 0, count = 1;
  // The graph has a feed for every boundary in `in`, an output SentName for every boundary in `out`, and only the
  // weights that it reads. The loss is that of the whole model and refers to the graph of the last stage.
  PreparedModel prepared;
  std::vector<Boundary> in, out;

  bool last() const { return index + 1 == count; }
};

// The forward graph of the values that the loss reads, by term.
struct LossGraph {
  Graph graph;
  std::vector<ValueId> results;
};
// Returns the nodes that the loss and the outputs of running statistics depend on. Unread parameters and state stay
// inputs.
LossGraph ReduceToLoss(const PreparedModel& whole);

absl::StatusOr<Stage> CutStage(const PreparedModel& whole, const Placement& placement, int stage);

// A value of another part of a graph, which becomes an input of the extracted part.
struct CutValue {
  ValueId value;
  InputKind kind;
  std::string name;
};

struct ExtractedGraph {
  Graph graph;                  // without outputs
  std::vector<ValueId> values;  // by value of the whole graph; kNoValue if the part lacks it
};

// Copies the nodes selected by `keep` and the graph inputs that they read, feeds first, into a new graph. `cuts` has
// every other value that they read; `wanted` are inputs that are copied even if no node reads them.
ExtractedGraph Extract(const Graph& whole, const std::vector<bool>& keep, const std::vector<CutValue>& cuts,
                       const std::vector<ValueId>& wanted);

// The graphs that compute a micro-batch. The last stage computes both passes in one program, because it has the loss.
struct StageGraphs {
  Graph forward;
  Graph backward;  // without outputs if there is nothing to compute
  // Values that the backward pass reads: outputs of `forward`, inputs of `backward`.
  std::vector<std::pair<std::string, Type>> saved;
};

struct StageMicroOptions {
  bool first = true;    // as MicroOptions
  bool scaled = false;  // as MicroOptions
};

absl::StatusOr<StageGraphs> BuildStageMicro(const Stage& stage, const LossSpec& loss, int64_t batch,
                                            const StageMicroOptions& options);

// Builds the graph of an evaluation, which sends the values that later stages read. In the last stage it adds up losses
// and metrics (BuildEval).
absl::StatusOr<Graph> BuildStageEval(const Stage& stage, const LossSpec& loss, int64_t batch,
                                     const std::vector<Metric>& metrics);

}  // namespace onnxtrain
