// The example backend of another party: the table of operators, training, and what is refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "backends/registry.h"
#include "exceptions.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "run.h"
#include "tests/paths.h"
#include "tests/plugin/libraries.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using cases::Case;
using cases::Tensors;

constexpr std::string_view kBackends[] = {"ten_operators", "ten_device"};

Backend& Plugin(std::string_view library) { return cases::BackendNamed(TestLibrary(library)); }

// The examples, or the library that a third party tests.
std::vector<std::string> TestedLibraries() {
  if (const char* named = std::getenv("ONNXTRAIN_TEST_BACKEND")) return {named};
  return {TestLibrary(kBackends[0]), TestLibrary(kBackends[1])};
}

// Float gradients where the case has any, else its outputs.
absl::StatusOr<Graph> CaseGraph(const Case& c, bool wide) {
  Graph graph = cases::MakeGraph(c, wide);
  if (!cases::DifferentiableInputs(c).empty()) RETURN_IF_ERROR(cases::AddGradients(c, &graph));
  return graph;
}

class PluginCase : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Table, PluginCase, ::testing::ValuesIn(cases::AllCases()),
                         [](const auto& info) { return info.param.name; });

// Values and gradients in both precisions. What the library lacks is decomposed or runs on the host.
void ExpectAgreementWithCpu(const Case& c) {
  for (const bool wide : {false, true}) {
    const auto graph = CaseGraph(c, wide);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const Tensors feeds = cases::MakeFeeds(c, *graph, wide);
    const auto want = cases::RunOn(cases::BackendNamed("cpu"), *graph, feeds);
    ASSERT_TRUE(want.ok()) << want.status();
    for (const std::string& library : TestedLibraries()) {
      SCOPED_TRACE(library);
      const auto got = cases::RunOn(cases::BackendNamed(library), *graph, feeds);
      ASSERT_TRUE(got.ok()) << got.status();
      cases::ExpectNear(*got, *want, wide ? 1e-10 : c.f32);
    }
  }
}

TEST_P(PluginCase, AgreesWithCpu) {
  cases::RunMode(cases::Mode::kPlugin, GetParam(), [] { ExpectAgreementWithCpu(GetParam()); });
}

TEST(PluginBackend, RunsItsOperatorsItself) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {4, 6}});
  graph.AddOutput("y", MatMul(Exp(x), Transpose(x, {1, 0})).id());
  Backend& backend = Plugin("ten_operators");
  EXPECT_EQ(backend.name(), "ten");
  EXPECT_EQ(backend.device(), "cpu");
  EXPECT_EQ(Plugin("ten_device").device(), "ten_device");
  const auto legal = backend.Legalize(graph);
  ASSERT_TRUE(legal.ok()) << legal.status();
  const auto program = backend.Compile(*legal, {.time_nodes = true});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->NodeSeconds().size(), legal->nodes().size());
  EXPECT_EQ((*program)->memory().scratch, 0u);
}

std::string CreationError(const std::string& path, const std::string& device = "auto") {
  const auto backend = CreateBackend(path, {.device = device});
  return backend.ok() ? "" : std::string(ToStd(backend.status().message()));
}

TEST(PluginBackend, WhatIsRefusedIsTold) {
  const auto expect = [](const std::string& error, std::string_view part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  };
  expect(CreationError("no/such/libX.so"), "no/such/libX.so: no such file");
  expect(CreationError(TestLibrary("broken_nothing")), "exports no OnnxtrainGetBackend");
  expect(CreationError(TestLibrary("broken_version")), "was built for version 2 of the plugin interface");
  expect(CreationError(TestLibrary("broken_null")), "does not serve version 1");
  expect(CreationError(TestLibrary("broken_size")), "has 8 bytes, expected");
  expect(CreationError(TestLibrary("broken_table")), "lacks a name, create");
  expect(CreationError(TestLibrary("ten_operators"), "gpu:3"), "there is no device 'gpu:3'");
  expect(CreationError(RepoPath("README.md")), "cannot be loaded");
}

// LeNet-like: convolutions and pooling run on the host or decompose, products and activations in the library.
tiny::Model SmallLeNet() {
  tiny::Model m{.input_shape = {-1, 1, 8, 8}};
  m.nodes = {{"Conv", {"x", "k", "kb"}, {"c"}, {{"pads", {1, 1, 1, 1}}, {"kernel_shape", {3, 3}}}},
             {"Relu", {"c"}, {"r"}},
             {"MaxPool", {"r"}, {"p"}, {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}}},
             {"Flatten", {"p"}, {"f"}},
             {"Gemm", {"f", "w", "b"}, {"y"}}};
  m.weights = {{"k", {4, 1, 3, 3}, tiny::Uniform(36, 0.3f, 1)},
               {"kb", {4}, std::vector<float>(4, 0)},
               {"w", {64, 3}, tiny::Uniform(192, 0.2f, 2)},
               {"b", {3}, std::vector<float>(3, 0)}};
  return m;
}

class PluginRun : public RunScratch {
 protected:
  // Pictures whose brightest third is their class.
  void WriteData() const {
    HostTensor x({DType::kFloat32, {96, 1, 8, 8}}), label({DType::kInt64, {96}});
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t sample = i / 64, row = i % 64 / 8;
      x.Set(i, static_cast<double>((i * 37 + sample * 11) % 17) / 17 + (row / 3 == sample % 3 ? 1 : 0));
    }
    for (int64_t s = 0; s < 96; ++s) label.SetInt(s, s % 3);
    ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  }
};

TEST_F(PluginRun, Trains) {
  SmallLeNet().Save(Path("m.onnx"));
  WriteData();
  const std::string line =
      "--model m.onnx --data d.npz --eval-data d.npz --batch-size 16 --epochs 6 --lr 1e-2 --backend ";
  ASSERT_EQ(RunProcess(line + "cpu --out cpu").code, 0);
  for (const std::string_view library : kBackends) {
    const Outcome o = RunProcess(StrCat(line, TestLibrary(library), " --out ", library));
    ASSERT_EQ(o.code, 0) << o.err;
    const auto got = Summary(std::string(library)), want = Summary("cpu");
    EXPECT_EQ(got["backend"], library == "ten_operators" ? "ten" : "ten_device");
    EXPECT_NEAR(got["final_loss"].get<double>(), want["final_loss"].get<double>(), 1e-3);
    EXPECT_GE(got["eval"]["accuracy"].get<double>(), 0.9);
    // The configuration of the run names the library, so that it is continued with it.
    EXPECT_NE(ReadAll(Path(StrCat(library, "/config.flags"))).find(TestLibrary(library)), std::string::npos);
    const Outcome more =
        RunProcess(StrCat("--flagfile ", library, "/config.flags --epochs 7 --resume auto --out ", library));
    EXPECT_EQ(more.code, 0) << more.err;
    const Outcome preds = RunProcess(
        StrCat("predict --model ", library, "/model.onnx --data d.npz --out p.csv --backend ", TestLibrary(library)));
    EXPECT_EQ(preds.code, 0) << preds.err;
  }
}

TEST_F(PluginRun, TheBackendOfThePageTrains) {
  SmallLeNet().Save(Path("m.onnx"));
  WriteData();
  const std::string line = "--model m.onnx --data d.npz --batch-size 16 --epochs 2 --backend ";
  ASSERT_EQ(RunProcess(line + "cpu --out cpu").code, 0);
  const Outcome o = RunProcess(StrCat(line, TestLibrary("my_backend"), " --out mine"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("mine")["backend"], "mine");
  EXPECT_NEAR(Summary("mine")["final_loss"].get<double>(), Summary("cpu")["final_loss"].get<double>(), 1e-4);
}

TEST_F(PluginRun, IsComparedWithCpu) {
  SmallLeNet().Save(Path("m.onnx"));
  WriteData();
  const std::string line = "compare --model m.onnx --data d.npz --quiet ";
  for (const std::string_view library : kBackends) {
    const std::string path = TestLibrary(library);
    const Outcome o = RunProcess(StrCat(line, "--json --backend ", path));
    ASSERT_EQ(o.code, 0) << o.err << o.out;
    const auto comparisons = nlohmann::json::parse(o.out)["comparisons"];
    ASSERT_EQ(comparisons.size(), 2u);
    EXPECT_EQ(comparisons[0]["title"], StrCat("cpu and ", path, ", every named value"));
    EXPECT_EQ(comparisons[1]["title"], StrCat("cpu and ", path, ", loss, outputs and gradients"));
    EXPECT_GE(comparisons[1]["values"].size(), 6u) << "loss, y and four gradients";
  }
  ExpectRefused(RunProcess(line + "--backend ./libX.so"), "libX.so: no such file");
  ExpectRefused(RunProcess(line + "--backend cpu"), "name torch or the path of a library");
}

TEST_F(PluginRun, RefusalsAreOneLine) {
  SmallLeNet().Save(Path("m.onnx"));
  const std::string line = "--model m.onnx --out r --backend ";
  ExpectRefused(RunProcess(line + "./libX.so"), "libX.so: no such file");
  ExpectRefused(RunProcess(line + TestLibrary("broken_version")), "version 2 of the plugin interface");
  ExpectRefused(RunProcess(StrCat(line, TestLibrary("ten_operators"), " --device gpu:3")),
                "there is no device 'gpu:3'");
  ExpectRefused(RunProcess(line + "tensorflow"), "or the path of a library");
}

}  // namespace
}  // namespace onnxtrain
