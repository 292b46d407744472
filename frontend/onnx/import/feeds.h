// The inputs of the graph that are fed with every run.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import/float_types.h"
#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/live_graph.h"
#include "frontend/onnx/import/scope.h"

namespace onnxtrain {

// Adds the model's live inputs to the graph and binds them in the top scope: feeds, one for each element of a sequence
// or optional, and constants for `options.fixed_inputs`. Notes inputs that are not used.
absl::Status CreateFeeds(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes,
                         const FloatTypes& types, Builder* builder, ImportScope* top, std::vector<std::string>* notes);

}  // namespace onnxtrain
