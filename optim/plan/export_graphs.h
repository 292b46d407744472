// Writes graphs for other runtimes: config.gradient_graph and config.training_graph.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

struct ExportedGraph {
  std::string path;
  int64_t batch = 0;     // the only one that it takes; 0: any
  std::string why;       // it takes no other batch; "" where batch_size says so
  bool updates = false;  // a training graph
};

struct ExportedGraphs {
  std::vector<ExportedGraph> graphs;
  std::vector<std::string> notes;  // what was decided, for people
};

// Prepares the model of the configuration, which is open already, as a training run does. The files must not be inputs.
// `weights` (config.weights or config.checkpoint; empty: none) are the defaults of parameters, by name, in place of the
// model's. Fails where one has another shape, or the model has none of them.
absl::StatusOr<ExportedGraphs> ExportGraphs(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                            const std::map<std::string, HostTensor>& weights);

}  // namespace onnxtrain
