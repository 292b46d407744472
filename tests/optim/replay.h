// Replays gradients through an update rule.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "frontend/ops/check.h"
#include "optim/rules/rule.h"
#include "optim/training_graph.h"

namespace onnxtrain {

using Vector = std::vector<double>;

// Runs the apply graph, as a session would: every input has memory of its own that outputs go `into`.
class Replay {
 public:
  // One group "g" of one parameter "w" of that shape.
  Replay(const std::string& backend, const UpdateSpec& spec, double decay, const Shape& shape, const Vector& start) {
    auto made = CreateBackend(backend, {.threads = 1});
    EXPECT_TRUE(made.ok()) << made.status();
    backend_ = *std::move(made);
    const bool per_tensor = FindRule(spec.optimizer)->per_tensor;
    param_ = per_tensor ? "w" : "param:g";
    grad_ = GradName(per_tensor ? "w" : "g");
    auto graph = BuildApply(spec, {{"g", NumElements(shape), {.weight_decay = decay}, {{"w", shape}}}}, 0);
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph);
    Compile(*graph);
    Set(param_, start);
  }

  void Step(const Vector& gradient) {
    Set(grad_, gradient);
    EXPECT_TRUE(program_->Run().ok());
    EXPECT_TRUE(backend_->Synchronize().ok());
  }

  HostTensor Get(const std::string& name) {
    HostTensor value(types_.at(name));
    EXPECT_TRUE(memory_.at(name)->Read(0, value.mutable_bytes()).ok());
    return value;
  }
  void Set(const std::string& name, const Vector& numbers) {
    HostTensor value(types_.at(name));
    for (size_t i = 0; i < numbers.size(); ++i) value.Set(static_cast<int64_t>(i), numbers[i]);
    EXPECT_TRUE(memory_.at(name)->Write(0, value.bytes()).ok());
  }
  HostTensor Param() { return Get(param_); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, type] : types_) names.push_back(name);
    return names;
  }
  const std::string& grad() const { return grad_; }

 private:
  void Compile(const Graph& graph) {
    auto legal = backend_->Legalize(graph);
    ASSERT_TRUE(legal.ok()) << legal.status();
    auto program = backend_->Compile(*legal, {});
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
    for (const GraphInput& input : program_->graph().inputs()) {
      types_[input.name] = program_->graph().type(input.value);
      memory_[input.name] = Allocate(types_[input.name].bytes());
      ASSERT_TRUE(program_->BindInput(input.name, {memory_[input.name].get(), 0}).ok());
    }
    arena_ = Allocate(program_->memory().arena);
    ASSERT_TRUE(program_->BindArena({arena_.get(), 0}).ok());
  }

  std::unique_ptr<Buffer> Allocate(size_t bytes) {
    auto buffer = backend_->Allocate(std::max<size_t>(bytes, 64));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  std::unique_ptr<Backend> backend_;  // outlives what it made
  std::unique_ptr<Buffer> arena_;
  std::map<std::string, Type> types_;
  std::map<std::string, std::unique_ptr<Buffer>> memory_;
  std::unique_ptr<Program> program_;
  std::string param_, grad_;
};

}  // namespace onnxtrain
