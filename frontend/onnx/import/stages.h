// The stages of an import around the walk over its nodes: supported operators, feeds, outputs, and the removal of what
// nothing needs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/onnx/import/import_state.h"
#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/live_graph.h"
#include "frontend/onnx/import/scope.h"

namespace onnxtrain {

// Whether every operator of a model can be imported.

// Collects all unsupported operators of live nodes, and of the functions that they call, into one error with counts and
// node names. Needs no shapes. Bodies are checked when they are imported, as a branch may never be taken.
absl::Status CheckOperators(const OnnxModel::Parsed& model, const LiveGraph& live);

// The inputs of the graph that are fed with every run.

// Adds the model's live inputs to the graph and binds them in the top scope: feeds, one for each element of a sequence
// or optional, and constants for `options.fixed_inputs`. Notes inputs that are not used.
absl::Status CreateFeeds(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes,
                         const FloatTypes& types, Builder* builder, ImportScope* top, std::vector<std::string>* notes);

// The outputs of the imported graph.

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

// Removes what an imported graph does not need.

struct SweptGraph {
  Graph graph;
  std::vector<ValueId> values;  // by value of the source: its value here, or kNoValue
};

// Copies what the outputs depend on. Feeds stay in any case, first and in order: they are the model's interface.
// Other inputs follow in the order in which the graph reads them: by layers.
SweptGraph SweepGraph(const Graph& graph);

}  // namespace onnxtrain
