// Running a graph on a backend, and comparing tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backends/bound_program.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

using Tensors = std::map<std::string, HostTensor>;

Backend& BackendNamed(std::string_view name);  // made once; the test fails if it cannot be

// Legalized, compiled and bound.
absl::StatusOr<BoundProgram> Compiled(Backend& backend, const Graph& graph);
absl::StatusOr<Tensors> Outputs(BoundProgram& program);  // of a run, by name

// Inputs that the graph does not have are passed over.
absl::StatusOr<Tensors> RunOn(Backend& backend, const Graph& graph, const Tensors& inputs);

// Inputs and cotangents of a case.
Tensors MakeFeeds(const Case& c, const Graph& graph, bool wide);

// Within `tolerance` times the largest finite element of `want`; infinities and NaNs in the same places. Integers and
// booleans must be equal.
::testing::AssertionResult Near(const HostTensor& got, const HostTensor& want, double tolerance);
// Every tensor of `want`, by name.
void ExpectNear(const Tensors& got, const Tensors& want, double tolerance);

}  // namespace onnxtrain::cases
