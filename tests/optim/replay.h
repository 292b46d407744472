// Replays gradients through the apply graph of an update rule.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/bound_program.h"
#include "backends/registry.h"
#include "frontend/ops/row.h"
#include "optim/step/rules/rule.h"
#include "optim/step/training_graph.h"
#include "tests/test_device.h"

namespace onnxtrain {

using Vector = std::vector<double>;

// Runs the apply graph like a session does: each input has a buffer that outputs go `into`.
class Replay {
 public:
  // One group "g" with one parameter "w" of this shape.
  Replay(const std::string& backend, const UpdateSpec& spec, double decay, const Shape& shape, const Vector& start) {
    auto made = CreateBackend(backend, TestOptions(backend, 1));
    EXPECT_TRUE(made.ok()) << made.status();
    backend_ = *std::move(made);
    const bool per_tensor = FindRule(spec.optimizer)->per_tensor || spec.optimizer.agc > 0;
    param_ = per_tensor ? "w" : ParamName("g");
    grad_ = GradName(per_tensor ? "w" : "g");
    auto graph = BuildApply(spec, {{"g", NumElements(shape), {.weight_decay = decay}, {{"w", shape}}}}, 0);
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph);
    program_ = BoundProgram::Make(*backend_, backend_->Legalize(*graph).value()).value();
    Set(param_, start);
  }

  void Step(const Vector& gradient) {
    Set(grad_, gradient);
    EXPECT_TRUE(program_->Run().ok());
  }

  HostTensor Get(const std::string& name) { return program_->Get(name).value(); }
  void Set(const std::string& name, const Vector& numbers) {
    const Graph& graph = program_->graph();
    const HostTensor value = HostTensor::FromDoubles(graph.type(graph.FindInput(name)->value), numbers);
    EXPECT_TRUE(program_->Set(name, value).ok());
  }
  HostTensor Param() { return Get(param_); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const GraphInput& input : program_->graph().inputs()) names.push_back(input.name);
    return names;
  }
  const std::string& grad() const { return grad_; }

 private:
  std::unique_ptr<Backend> backend_;  // declared first: outlives its programs
  std::optional<BoundProgram> program_;
  std::string param_, grad_;
};

}  // namespace onnxtrain
