// Running graphs on the cpu backend.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/check.h"

namespace onnxtrain {

inline Backend& Cpu() {
  static Backend* backend = [] {
    auto loaded = CreateBackend("cpu", {});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded->release();
  }();
  return *backend;
}

// A program with memory of its own.
class BoundProgram {
 public:
  BoundProgram(Backend& backend, const Graph& graph, CompileOptions options = {}) : backend_(backend) {
    auto legal = backend.Legalize(graph);
    EXPECT_TRUE(legal.ok()) << legal.status().message();
    EXPECT_TRUE(Verify(*legal).ok()) << Verify(*legal).message();
    auto program = backend.Compile(*legal, options);
    EXPECT_TRUE(program.ok()) << program.status().message();
    program_ = std::move(*program);
    for (const GraphInput& input : this->graph().inputs()) {
      inputs_[input.name] = Allocate(this->graph().type(input.value).bytes());
      EXPECT_TRUE(program_->BindInput(input.name, {inputs_[input.name].get(), 0}).ok());
    }
    for (const GraphOutput& output : this->graph().outputs()) {
      if (output.into != kNoValue) continue;
      outputs_[output.name] = Allocate(this->graph().type(output.value).bytes());
      EXPECT_TRUE(program_->BindOutput(output.name, {outputs_[output.name].get(), 0}).ok());
    }
    arena_ = Allocate(program_->memory().arena);
    EXPECT_TRUE(program_->BindArena({arena_.get(), 0}).ok());
  }

  const Graph& graph() const { return program_->graph(); }
  Program& program() { return *program_; }

  void Set(const std::string& input, const HostTensor& value) {
    ASSERT_EQ(value.type(), graph().type(graph().FindInput(input)->value)) << input;
    ASSERT_TRUE(inputs_.at(input)->Write(0, value.bytes()).ok());
  }
  void Run() {
    const absl::Status status = program_->Run();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  HostTensor Get(const std::string& output) {
    const GraphOutput& o = *graph().FindOutput(output);
    Buffer& buffer = o.into == kNoValue ? *outputs_.at(output) : *inputs_.at(graph().inputs()[graph().value(o.into).index].name);
    HostTensor value(graph().type(o.value));
    EXPECT_TRUE(buffer.Read(0, value.mutable_bytes()).ok());
    return value;
  }

 private:
  std::unique_ptr<Buffer> Allocate(size_t bytes) { return std::move(*backend_.Allocate(bytes)); }

  Backend& backend_;
  std::unique_ptr<Program> program_;
  std::map<std::string, std::unique_ptr<Buffer>> inputs_, outputs_;
  std::unique_ptr<Buffer> arena_;
};

// The outputs, in order.
inline std::vector<HostTensor> RunOnce(Backend& backend, const Graph& graph, const std::map<std::string, HostTensor>& inputs) {
  BoundProgram program(backend, graph);
  for (const auto& [name, value] : inputs) program.Set(name, value);
  program.Run();
  std::vector<HostTensor> outputs;
  for (const GraphOutput& o : graph.outputs()) outputs.push_back(program.Get(o.name));
  return outputs;
}

// Floats are uniform in [low, high], integers in the same range, bools are coins.
inline HostTensor RandomTensor(const Type& type, std::mt19937& random, double low = -2, double high = 2) {
  HostTensor tensor(type);
  std::uniform_real_distribution<double> uniform(low, high);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = uniform(random);
    tensor.Set(i, IsFloat(type.dtype) ? x : type.dtype == DType::kBool ? static_cast<double>(random() % 2) : std::floor(x));
  }
  return tensor;
}

}  // namespace onnxtrain
