// Implements the stages of an import before and after its nodes: operator checks, feeds, outputs and dead code
// elimination.
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

// Collects all unsupported operators of live nodes, and of the functions that they call, into one error with counts and
// node names. Needs no shapes. Bodies are checked when they are imported, because a branch may never be taken.
absl::Status CheckOperators(const OnnxModel::Parsed& model, const LiveGraph& live);

// Adds the model's live inputs to the graph and binds them in the top scope, as feeds (one for each element of a
// sequence or optional) or, for `options.fixed_inputs`, as constants. Notes unused inputs.
absl::Status CreateFeeds(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes,
                         const FloatTypes& types, Builder* builder, ImportScope* top, std::vector<std::string>* notes);

// Returns the names of the values that become outputs: the requested ones, or the model's own. Omits outputs of
// strings, with a note, if the model has other outputs.
std::vector<std::string> ChooseOutputs(const OnnxModel::Parsed& model, const ImportOptions& options,
                                       std::vector<std::string>* notes);

// Adds the values as outputs of the graph, a list as one output for each element. Returns the names of the graph's
// outputs in order. `batch` is the number of samples.
absl::StatusOr<std::vector<std::string>> BindOutputs(ImportState& state, const std::vector<std::string>& outputs,
                                                     int64_t batch);

// Adds the logits of outputs that are class probabilities as further outputs ("y.logits"). Returns their names by
// output and notes them.
std::map<std::string, Logits> ExposeLogits(ImportState& state, const std::vector<std::string>& outputs,
                                           std::vector<std::string>* notes);

// Adds an output with the new value of each state that a node updates ("running_mean.next").
std::vector<StateUpdate> BindStateUpdates(ImportState& state);

struct SweptGraph {
  Graph graph;
  std::vector<ValueId> values;  // by ValueId of the source graph: the value in `graph`, or kNoValue
};

// Copies the nodes and inputs that the outputs depend on. Keeps all feeds, first and in order, because they are the
// model's interface. Other inputs follow in the order in which the graph reads them, that is, by layer.
SweptGraph SweepGraph(const Graph& graph);

}  // namespace onnxtrain
