// Running graphs on the cpu backend.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/bound_program.h"
#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

inline Backend& Cpu() {
  static Backend* backend = [] {
    auto loaded = CreateBackend("cpu", {});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded->release();
  }();
  return *backend;
}

// Legalized, verified, compiled and bound.
inline BoundProgram CompileGraph(Backend& backend, const Graph& graph) {
  auto legal = backend.Legalize(graph);
  EXPECT_TRUE(legal.ok()) << legal.status().message();
  EXPECT_TRUE(Verify(*legal).ok()) << Verify(*legal).message();
  auto program = BoundProgram::Make(backend, *legal);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *std::move(program);
}

// The outputs, in order.
inline std::vector<HostTensor> RunOnce(Backend& backend, const Graph& graph,
                                       const std::map<std::string, HostTensor>& inputs) {
  BoundProgram program = CompileGraph(backend, graph);
  for (const auto& [name, value] : inputs) EXPECT_TRUE(program.Set(name, value).ok()) << name;
  EXPECT_TRUE(program.Run().ok());
  std::vector<HostTensor> outputs;
  for (const GraphOutput& o : graph.outputs()) outputs.push_back(program.Get(o.name).value());
  return outputs;
}

// Floats are uniform in [low, high], integers in the same range, bools are coins.
inline HostTensor RandomTensor(const Type& type, std::mt19937& random, double low = -2, double high = 2) {
  HostTensor tensor(type);
  std::uniform_real_distribution<double> uniform(low, high);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = uniform(random);
    tensor.Set(i, IsFloat(type.dtype)          ? x
                  : type.dtype == DType::kBool ? static_cast<double>(random() % 2)
                                               : std::floor(x));
  }
  return tensor;
}

// Compares elements relative to the larger of the wanted value and `scale`.
inline void ExpectClose(const HostTensor& got, const HostTensor& want, double tolerance, double scale) {
  ASSERT_EQ(got.type(), want.type());
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = got.At(i), b = want.At(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    ASSERT_LE(std::abs(a - b), tolerance * std::max(std::abs(b), scale))
        << "element " << i << ": " << a << " for " << b;
  }
}

// Calls f for every instruction set that vector kernels are compiled for and that this processor has. Kernels take
// theirs when they are prepared.
template <typename F>
void ForEachTarget(F f) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace onnxtrain
