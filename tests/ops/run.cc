#include "run.h"

#include <cmath>

#include "backends/registry.h"
#include "frontend/base/status.h"
#include "tests/test_device.h"

namespace onnxtrain::cases {

Backend& BackendNamed(std::string_view name) {
  static auto* backends = new std::map<std::string, std::unique_ptr<Backend>, std::less<>>;
  auto it = backends->find(name);
  if (it == backends->end()) {
    auto made = CreateBackend(name, TestOptions(name, 2));
    if (!made.ok()) {
      ADD_FAILURE() << made.status();
      std::abort();
    }
    it = backends->emplace(name, *std::move(made)).first;
  }
  return *it->second;
}

absl::StatusOr<BoundProgram> Compiled(Backend& backend, const Graph& graph) {
  ASSIGN_OR_RETURN(const Graph legal, backend.Legalize(graph));
  return BoundProgram::Make(backend, legal);
}

absl::StatusOr<Tensors> Outputs(BoundProgram& program) {
  RETURN_IF_ERROR(program.Run());
  Tensors results;
  for (const GraphOutput& output : program.graph().outputs()) {
    ASSIGN_OR_RETURN(results[output.name], program.Get(output.name));
  }
  return results;
}

absl::StatusOr<Tensors> RunOn(Backend& backend, const Graph& graph, const Tensors& inputs) {
  ASSIGN_OR_RETURN(BoundProgram program, Compiled(backend, graph));
  for (const auto& [name, value] : inputs) {
    if (program.graph().FindInput(name) != nullptr) RETURN_IF_ERROR(program.Set(name, value));
  }
  return Outputs(program);
}

Tensors MakeFeeds(const Case& c, const Graph& graph, bool wide) {
  Tensors feeds;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.inputs[i].absent) feeds[StrCat("x", i)] = MakeInput(c, i, wide);
  }
  for (int o : c.through) {
    if (const GraphInput* dy = graph.FindInput(StrCat("dy", o)))
      feeds[dy->name] = MakeCotangent(c, o, graph.type(dy->value));
  }
  return feeds;
}

::testing::AssertionResult Near(const HostTensor& got, const HostTensor& want, double tolerance) {
  if (!(got.type() == want.type())) {
    return ::testing::AssertionFailure() << "got " << ToString(got.type()) << ", want " << ToString(want.type());
  }
  double scale = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want.At(i))) scale = std::max(scale, std::fabs(want.At(i)));
  }
  const double slack = tolerance * scale;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double g = got.At(i), w = want.At(i);
    const bool same = !IsFloat(want.dtype()) ? got.IntAt(i) == want.IntAt(i)
                                             : g == w || (std::isnan(g) && std::isnan(w)) || std::fabs(g - w) <= slack;
    if (!same) {
      return ::testing::AssertionFailure() << "element " << i << ": got " << g << ", want " << w << ", off by "
                                           << std::fabs(g - w) / scale << " of the largest element";
    }
  }
  return ::testing::AssertionSuccess();
}

void ExpectNear(const Tensors& got, const Tensors& want, double tolerance) {
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_TRUE(Near(got.at(name), tensor, tolerance)) << name;
  }
}

}  // namespace onnxtrain::cases
