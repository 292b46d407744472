// What the tests of passes share: graphs as text, and both sides of a pass evaluated on the same random numbers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

inline Graph MustParse(std::string_view text) {
  auto graph = Parse(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  if (!graph.ok()) return Graph();
  EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph) << "\n" << text;
  return *std::move(graph);
}

// Normal numbers; integers from 0 and 1, so that they serve as small indices and as conditions.
inline std::map<std::string, HostTensor> RandomInputs(const Graph& graph, int seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor t(graph.type(input.value));
    for (int64_t i = 0; i < t.size(); ++i)
      t.Set(i, IsFloat(t.dtype()) ? normal(random) : static_cast<double>(random() % 2));
    inputs.emplace(input.name, std::move(t));
  }
  return inputs;
}

inline std::vector<HostTensor> MustRun(const Graph& graph, const std::map<std::string, HostTensor>& inputs) {
  auto outputs = Interpret(graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status() << "\n" << Print(graph);
  return outputs.ok() ? *std::move(outputs) : std::vector<HostTensor>();
}

inline void ExpectNear(const HostTensor& a, const HostTensor& b, double tolerance, const std::string& what = "") {
  ASSERT_EQ(ToString(a.type()), ToString(b.type())) << what;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.At(i), y = b.At(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ASSERT_LE(std::abs(x - y), tolerance * (1 + std::abs(x)))
        << what << " element " << i << ": " << x << " against " << y;
  }
}

// Both graphs give the same numbers. Inputs of `b` that `a` lacks do not occur.
inline void ExpectSameNumbers(const Graph& a, const Graph& b, double tolerance = 1e-6) {
  const auto inputs = RandomInputs(a);
  const auto x = MustRun(a, inputs), y = MustRun(b, inputs);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i)
    ExpectNear(x[i], y[i], tolerance, StrCat("output ", i, " of\n", Print(a), Print(b)));
}

// "graph(INPUTS) {\n  LINE\n  LINE\n  return OUTPUTS\n}\n", to keep tables short: `body` has lines separated by ';' and
// ends with the outputs.
inline std::string GraphText(std::string_view inputs, std::string_view body) {
  std::string out = StrCat("graph(", inputs, ") {\n");
  for (size_t start = 0; start < body.size();) {
    const size_t end = std::min(body.find("; ", start), body.size());
    const bool last = end == body.size();
    StrAppend(&out, last ? "  return " : "  ", body.substr(start, end - start), "\n");
    start = end + 2;
  }
  return out + "}\n";
}

}  // namespace onnxtrain
