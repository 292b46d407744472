// Running a graph on a backend, and comparing tensors.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backends/backend.h"
#include "cases.h"

namespace onnxtrain::cases {

using Tensors = std::map<std::string, HostTensor>;

Backend& BackendNamed(std::string_view name);  // made once; the test fails if it cannot be

// A compiled graph with memory of its own.
class Runner {
 public:
  static absl::StatusOr<std::unique_ptr<Runner>> Make(Backend& backend, const Graph& graph);
  absl::Status Set(std::string_view input, const HostTensor& value);
  absl::StatusOr<Tensors> Run();  // the outputs by name

 private:
  std::unique_ptr<Program> program_;
  std::unique_ptr<Buffer> arena_;
  std::map<std::string, std::unique_ptr<Buffer>, std::less<>> inputs_;
  std::map<std::string, std::unique_ptr<Buffer>> outputs_;
};

// Inputs that the graph does not have are passed over.
absl::StatusOr<Tensors> RunOn(Backend& backend, const Graph& graph, const Tensors& inputs);

// Inputs and cotangents of a case.
Tensors FeedsOf(const Case& c, const Graph& graph, bool wide);

// Within `tolerance` times the largest finite element of `want`; infinities and NaNs in the same places. Integers and
// booleans must be equal.
::testing::AssertionResult Near(const HostTensor& got, const HostTensor& want, double tolerance);
// Every tensor of `want`, by name.
void ExpectNear(const Tensors& got, const Tensors& want, double tolerance);

}  // namespace onnxtrain::cases
