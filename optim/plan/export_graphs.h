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
  int64_t batch = 0;     // the only batch size that it takes; 0: any
  std::string why;       // why it takes no other batch size; "" if batch_size sets it
  bool updates = false;  // a training graph
};

struct ExportedGraphs {
  std::vector<ExportedGraph> graphs;
  std::vector<std::string> notes;  // what was decided, for people
};

// Prepares the opened model of the configuration as a training run does, and writes the graphs. The files to write must
// not be input files. `weights` (from config.weights or config.checkpoint; may be empty) replace the model's values as
// the defaults of parameters, by name. Fails if a shape differs or if the model has no parameter of a name.
absl::StatusOr<ExportedGraphs> ExportGraphs(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                            const std::map<std::string, HostTensor>& weights);

}  // namespace onnxtrain
