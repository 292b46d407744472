// Inspects a model for `onnxtrain inspect`: operators, weights, loss, obstacles to training.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/recover/parametrizations.h"
#include "optim/config/config.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain::cli {

// How backends run an operator of the file, and whether gradients flow through it.
struct OperatorSupport {
  std::string op;  // name in the file
  int count = 0;
  bool known = true;  // false: cannot be imported
  // By backend: "kernel", "decomposed" or "missing"; "absent" if the backend is not installed. Empty if the import
  // leaves no node of the operator.
  std::map<std::string, std::string> backends;
  std::string gradient;  // comma-separated "formula", "decomposition", "zero", "none"; "" if no node is left
};

struct InstalledBackend {
  std::string name;
  std::unique_ptr<Backend> backend;  // null where its library cannot be loaded
  std::string problem;
};
// Loads a backend on the CPU; sets `problem` if that fails.
InstalledBackend LoadInstalledBackend(const std::string& name);

// `model` is the import of `file`, or null if it failed with `failures`; then `backends` of the results are empty.
std::vector<OperatorSupport> GetOperatorSupport(const OnnxModel& file, const ImportedModel* model,
                                                const std::vector<NodeFailure>& failures,
                                                const std::vector<InstalledBackend>& backends);

// Counts, by operator, the composites of an optimized import that replaced nodes of other operators.
std::map<std::string, int> CountRecognized(const OnnxModel& file, const Graph& graph);

struct Inspection {
  std::shared_ptr<const OnnxModel> model;
  std::map<std::string, Type> outputs;  // by name, for the extents in `shapes`; empty if the import failed
  std::map<std::string, Shape> shapes;  // by input, with values for free dimensions
  std::vector<OperatorSupport> operators;
  std::map<std::string, int> recognized;   // composites fused from several nodes, by operator
  std::map<std::string, int> elementwise;  // composites that elementwise kernels compute without fusion, by operator
  std::vector<std::string> near_misses;    // subgraphs that almost match a composite, with the reason
  // The loaded backends: cpu, and torch if it was requested, if there may be a GPU, or if cpu cannot run everything.
  // Loading libtorch takes longer than most inspections.
  std::vector<std::string> looked_at;
  std::map<std::string, std::string> backends;  // by backend: "", or why it cannot run the training step
  std::vector<std::string> problems;            // each prevents training
  std::vector<std::string> quirks;
  std::vector<WeightDecision> weights;
  std::vector<WeightForm> forms;  // how the file stores each of `weights`
  ModelOrigin origin;
  std::string loss;          // chosen by auto without labels; "" if it cannot choose
  std::string loss_problem;  // why auto cannot choose
  // Per sample; 0: unknown.
  double forward_flops = 0, training_flops = 0, activation_bytes = 0;
  double parameter_bytes = 0;
};

// Inspects config.model; reads the fields about model, loss, dimensions and backend.
absl::StatusOr<Inspection> Inspect(const TrainConfig& config);

}  // namespace onnxtrain::cli
