// The outputs of the imported graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/import/import_state.h"

namespace onnxtrain {

// The names of the values to make outputs of: those that were asked for, or the model's own. Labels that are strings
// cannot be computed nor trained on: they are left out and noted where the model has other outputs.
std::vector<std::string> ChooseOutputs(const OnnxModel::Parsed& model, const ImportOptions& options,
                                       std::vector<std::string>* notes);

// Adds the values as outputs of the graph, a list as one output for each element. Returns the names of the graph's
// outputs in order. `batch`: samples of the import.
absl::StatusOr<std::vector<std::string>> BindOutputs(ImportState& state, const std::vector<std::string>& outputs,
                                                     int64_t batch);

// Adds the logits behind outputs that are probabilities of a classifier as further outputs ("y.logits"). Returns their
// names by output and notes them.
std::map<std::string, Logits> ExposeLogits(ImportState& state, const std::vector<std::string>& outputs,
                                           std::vector<std::string>* notes);

// Adds the new value of each state that a node updates as an output into it ("running_mean.next").
std::vector<StateUpdate> BindStateUpdates(ImportState& state);

}  // namespace onnxtrain
