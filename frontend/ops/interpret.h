// Evaluates a graph on the host by the rows' `evaluate`, or by the decomposition of rows without it. For proofs and
// tests: slow, and keeps every value in memory until the end.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns the graph outputs, in order. Fails if an input is missing or has another type, and on operators that can be
// neither evaluated nor decomposed (random operators).
absl::StatusOr<std::vector<HostTensor>> Interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs);

}  // namespace onnxtrain
