// Evaluates a whole graph on the host by the rows' `evaluate`, or by the decomposition of rows that have none. For
// proofs and tests: slow, and every value stays in memory until the end.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// The graph outputs, in order. Fails where an input is missing or of another type, and on operators that can be neither
// evaluated nor decomposed (random ones).
absl::StatusOr<std::vector<HostTensor>> Interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs);

}  // namespace onnxtrain
