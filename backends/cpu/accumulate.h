// Gradients that are added where the accumulated ones lie: what makes them takes the old sum as an operand and writes over it, so that
// no gradient of one micro-batch is ever in memory.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

// A sum that stands in place of one of its terms, a float32 input that nobody else reads; the other term is read here alone.
struct Accumulation {
  ValueId old = kNoValue, term = kNoValue;
};

// By sum (the Add's output).
std::map<ValueId, Accumulation> FindAccumulations(const Graph& graph);

// cpu.GatherGradAdd: dy, indices, and what the gradient of Gather is added to.
OpRow GatherGradAddRow();

// Sums of a value that is needed no more and the gradient of a table: rows that no index names are not touched. Leaves dead nodes behind.
absl::StatusOr<Graph> FuseGatherGrads(const Graph& graph);

}  // namespace onnxtrain::cpu
