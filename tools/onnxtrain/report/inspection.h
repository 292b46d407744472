// What `inspect` finds in a model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/import_failures.h"
#include "frontend/onnx/recover/parametrizations.h"
#include "optim/config/config.h"
#include "optim/plan/learning_rates.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain::cli {

// How each backend runs the operators of a model, and whether gradients pass them.

struct OperatorSupport {
  std::string op;  // of the file
  int count = 0;
  bool known = true;  // else it cannot be imported
  // By backend: "kernel", "decomposed" or "missing"; "absent" where the backend is not installed. None where nothing of
  // the operator is left to be run.
  std::map<std::string, std::string> backends;
  std::string gradient;  // "formula", "decomposition", "zero", "none", several by comma; "": nothing is left
};

struct InstalledBackend {
  std::string name;
  std::unique_ptr<Backend> backend;  // null where its library cannot be loaded
  std::string problem;
};
// Loads a backend for the CPU, installed or not.
InstalledBackend LoadInstalledBackend(const std::string& name);

// `model` is the import of `file`, or null where that failed with `failures`; no backend is asked then.
std::vector<OperatorSupport> GetOperatorSupport(const OnnxModel& file, const ImportedModel* model,
                                                const std::vector<NodeFailure>& failures,
                                                const std::vector<InstalledBackend>& backends);

// Counts the composites of an optimized import that replaced nodes of another operator of the file.
std::map<std::string, int> CountRecognized(const OnnxModel& file, const Graph& graph);

struct Inspection {
  std::shared_ptr<const OnnxModel> model;
  std::map<std::string, Type> outputs;  // by name, at the extents in `shapes`; empty where the import failed
  std::map<std::string, Shape> shapes;  // by input, with values for free dimensions
  std::vector<OperatorSupport> operators;
  std::map<std::string, int> recognized;   // composites that replaced written forms, by operator
  std::map<std::string, int> elementwise;  // forms that kernels for elementwise regions compute as they are
  std::vector<std::string> near_misses;    // what looks like a composite and is none, and why
  // The backends that were loaded: cpu, and torch where it is asked for, where there may be a GPU for it, or where cpu
  // cannot run everything. Loading libtorch takes longer than most inspections.
  std::vector<std::string> looked_at;
  std::map<std::string, std::string> backends;  // of those: "" or why it cannot run the training step
  std::vector<std::string> problems;            // each prevents training
  std::vector<std::string> quirks;
  std::vector<WeightDecision> weights;
  std::vector<WeightForm> forms;  // how the file stores each of `weights`
  ModelOrigin origin;
  std::string loss;          // chosen by auto without labels; "" where it cannot choose
  std::string loss_problem;  // why not
  // Per sample; 0: unknown.
  double forward_flops = 0, training_flops = 0, activation_bytes = 0;
  double parameter_bytes = 0;
};

// Inspects config.model; reads the fields about model, loss, dimensions and backend.
absl::StatusOr<Inspection> Inspect(const TrainConfig& config);

}  // namespace onnxtrain::cli
