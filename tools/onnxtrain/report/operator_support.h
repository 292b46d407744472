// How each backend runs the operators of a model, and whether gradients pass them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/import_failures.h"

namespace onnxtrain::cli {

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

}  // namespace onnxtrain::cli
