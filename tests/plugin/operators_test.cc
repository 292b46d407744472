// Operators of another domain from the example library: gradients, training, and what is refused.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "backends/bound_program.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/row.h"
#include "frontend/ops/single_node_importer.h"
#include "frontend/passes/differentiate.h"
#include "frontend/plugin/operators.h"
#include "run.h"
#include "tests/plugin/libraries.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using cases::Tensors;

class PluginOperator : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status loaded = LoadPlugin(TestLibrary("example_operators"));
    ASSERT_TRUE(loaded.ok()) << loaded;
    ASSERT_TRUE(LoadPlugin(TestLibrary("example_operators")).ok()) << "a second time";
  }
};

struct Example {
  std::string op;
  std::vector<Shape> shapes;
  Attrs attrs;
  bool float64 = true;  // the kernel takes it
};

const Example kExamples[] = {
    {"Saturate", {{3, 4}}, {{"scale", 0.7}}},
    {"Cube", {{5}}, {}, false},
    {"Blend", {{2, 3}, {2, 3}, {3}}, {}},
};

// y, and the gradient of Σ dy·y for each input.
Graph MakeJoint(const Example& e, DType dtype) {
  SingleNodeImporter importer(e.op, 1, "example");
  for (const Shape& shape : e.shapes) importer.Input({dtype, shape});
  for (const auto& [name, value] : e.attrs) importer.Attr(name, value);
  const auto outputs = importer.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  Graph& graph = importer.graph();
  std::vector<ValueId> wrt;
  for (const GraphInput& input : graph.inputs()) wrt.push_back(input.value);
  const Val y = outputs->front();
  const ValueId dy = graph.AddInput(InputKind::kFeed, "dy", y.type());
  graph.AddOutput("y", y.id());
  const Seed seeds[] = {{y.id(), dy}};
  const auto grads = Differentiate(&graph, seeds, wrt);
  EXPECT_TRUE(grads.ok()) << grads.status();
  for (size_t i = 0; i < wrt.size(); ++i) graph.AddOutput(StrCat("dx", i), grads->at(wrt[i]));
  return graph;
}

Tensors MakeFeeds(const Graph& graph) {
  Tensors feeds;
  cases::Rng rng(7);
  for (const GraphInput& input : graph.inputs()) {
    HostTensor x(graph.type(input.value));
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, rng.Uniform(-1.5, 1.5));
    feeds[input.name] = x;
  }
  return feeds;
}

double Loss(const Tensors& results, const Tensors& feeds) {
  double sum = 0;
  const HostTensor &y = results.at("y"), &dy = feeds.at("dy");
  for (int64_t i = 0; i < y.size(); ++i) sum += y.At(i) * dy.At(i);
  return sum;
}

TEST_F(PluginOperator, GradientsAgreeWithFiniteDifferences) {
  for (const Example& e : kExamples) {
    SCOPED_TRACE(e.op);
    const DType dtype = e.float64 ? DType::kFloat64 : DType::kFloat32;
    const double step = e.float64 ? 1e-5 : 1e-2, tolerance = e.float64 ? 1e-8 : 2e-3;
    const Graph graph = MakeJoint(e, dtype);
    const Tensors feeds = MakeFeeds(graph);
    const auto exact = cases::RunOn(cases::BackendNamed("cpu"), graph, feeds);
    ASSERT_TRUE(exact.ok()) << exact.status();
    for (size_t input = 0; input < e.shapes.size(); ++input) {
      const std::string name = StrCat("x", input);
      for (int64_t i = 0; i < feeds.at(name).size(); ++i) {
        double loss[2];
        for (const int side : {0, 1}) {
          Tensors moved = feeds;
          moved[name] = feeds.at(name).Clone();
          moved[name].Set(i, moved[name].At(i) + (side == 0 ? -step : step));
          loss[side] = Loss(*cases::RunOn(cases::BackendNamed("cpu"), graph, moved), moved);
        }
        EXPECT_NEAR(exact->at(StrCat("dx", input)).At(i), (loss[1] - loss[0]) / (2 * step), tolerance);
      }
    }
  }
}

// Every backend that works in the memory of the host runs the kernels of the library; others by way of it.
TEST_F(PluginOperator, BackendsAgree) {
  for (const Example& e : kExamples) {
    SCOPED_TRACE(e.op);
    const Graph graph = MakeJoint(e, DType::kFloat32);
    const Tensors feeds = MakeFeeds(graph);
    const auto want = cases::RunOn(cases::BackendNamed("cpu"), graph, feeds);
    ASSERT_TRUE(want.ok()) << want.status();
    for (const std::string& name : {std::string("torch"), TestLibrary("ten_operators"), TestLibrary("ten_device")}) {
      SCOPED_TRACE(name);
      const auto got = cases::RunOn(cases::BackendNamed(name), graph, feeds);
      ASSERT_TRUE(got.ok()) << got.status();
      cases::ExpectNear(*got, *want, 1e-6);
    }
  }
}

TEST_F(PluginOperator, AFailureNamesTheNode) {
  for (const std::string& name : {std::string("cpu"), std::string("torch"), TestLibrary("ten_device")}) {
    Graph graph;
    Builder b(&graph);
    b.set_source("layer/fails");
    const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2}});
    graph.AddOutput("y", b.Op("example.Fails", {x}).id());
    const auto got = cases::RunOn(cases::BackendNamed(name), graph, MakeFeeds(graph));
    ASSERT_FALSE(got.ok()) << name;
    const std::string message(ToStd(got.status().message()));
    EXPECT_NE(message.find("'layer/fails'"), std::string::npos) << message;
    EXPECT_NE(message.find("the device is on fire"), std::string::npos) << message;
  }
}

TEST_F(PluginOperator, WrongTypesAreTold) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kInt64, {2}});
  b.Op("example.Cube", {x});
  EXPECT_NE(b.TakeStatus().message().find("element type 7 is no float32"), absl::string_view::npos);
  const Val f = b.Input(InputKind::kFeed, "f", {DType::kFloat32, {2}});
  b.Op("example.Saturate", {f}, {{"slope", 1.0}});
  EXPECT_NE(b.TakeStatus().message().find("has no attribute 'slope'"), absl::string_view::npos);
  b.Op("example.Cube", {f, f});
  EXPECT_NE(b.TakeStatus().message().find("expected 1 inputs, got 2"), absl::string_view::npos);
  SingleNodeImporter blend("Blend", 1, "example");
  const Type matrix{DType::kFloat32, {2, 3}};
  const auto outputs = blend.Input(matrix).Input(matrix).Input({DType::kFloat32, {2}}).Import();
  EXPECT_NE(outputs.status().message().find("a vector of the last axis"), absl::string_view::npos) << outputs.status();
}

TEST(LoadPlugin, RefusesWhatCannotBeLoaded) {
  const auto expect = [](const std::string& library, std::string_view part) {
    const absl::Status status = LoadPlugin(library);
    EXPECT_FALSE(status.ok()) << library;
    EXPECT_NE(ToStd(status.message()).find(part), std::string_view::npos) << status;
  };
  expect("no/such/libX.so", "no/such/libX.so: no such file");
  expect(TestLibrary("broken_nothing"), "exports no OnnxtrainGetOperators");
  expect(TestLibrary("broken_version"), "was built for version 2 of the plugin interface");
  expect(TestLibrary("broken_table"), "operator broken.Op has neither a decomposition nor a kernel");
}

// x·w → Saturate → Cube → ·v, with Blend of a weight between.
tiny::Model CustomModel() {
  tiny::Model m{.input_shape = {-1, 6}};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}},
             {.type = "Saturate", .inputs = {"h"}, .outputs = {"s"}, .domain = "example"},
             {.type = "Blend", .inputs = {"s", "h", "mix"}, .outputs = {"b"}, .domain = "example"},
             {.type = "Cube", .inputs = {"b"}, .outputs = {"c"}, .domain = "example"},
             {"MatMul", {"c", "v"}, {"y"}}};
  m.weights = {{"w", {6, 8}, tiny::Uniform(48, 0.6f, 1)},
               {"mix", {8}, tiny::Uniform(8, 0.6f, 2)},
               {"v", {8, 3}, tiny::Uniform(24, 0.5f, 3)}};
  return m;
}

class PluginTraining : public RunScratch {
 protected:
  void SetUp() override {
    CustomModel().Save(Path("m.onnx"));
    HostTensor x({DType::kFloat32, {90, 6}}), label({DType::kInt64, {90}});
    for (int64_t s = 0; s < 90; ++s) {
      for (int64_t i = 0; i < 6; ++i)
        x.Set(s * 6 + i, static_cast<double>((s * 7 + i * 13) % 11) / 11 + (i / 2 == s % 3 ? 1.5 : 0));
      label.SetInt(s, s % 3);
    }
    ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  }

  const std::string line_ = "--model m.onnx --data d.npz --eval-data d.npz --batch-size 15 --epochs 20 --lr 3e-2 ";
  const std::string plugin_ = StrCat("--plugin ", TestLibrary("example_operators"), " ");
};

TEST_F(PluginTraining, AModelWithCustomOperatorsTrainsOnceItsLibraryIsNamed) {
  const Outcome without = RunProcess(line_ + "--out a");
  ExpectRefused(without, "example.Saturate (1: 's_node')");
  ExpectRefused(without, "--plugin loads a library");

  const Outcome with = RunProcess(line_ + plugin_ + "--out b");
  ASSERT_EQ(with.code, 0) << with.err;
  const auto summary = Summary("b");
  EXPECT_GE(summary["eval"]["accuracy"].get<double>(), 0.95);
  EXPECT_GT(summary["eval_before"]["loss"].get<double>(), 1.5 * summary["eval"]["loss"].get<double>());
  EXPECT_EQ(summary["trainable_parameters"], 48 + 8 + 24);

  // The exported model keeps its nodes; it is read with the same library.
  ExpectRefused(RunProcess("eval --model b/model.onnx --data d.npz"), "--plugin");
  EXPECT_EQ(RunProcess("eval --model b/model.onnx --data d.npz " + plugin_).code, 0);
  const Outcome inspected = RunProcess("inspect --model b/model.onnx " + plugin_);
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("example.Saturate"), std::string::npos) << inspected.out;
  // A resumed run finds the library in its configuration.
  EXPECT_EQ(RunProcess("--flagfile b/config.flags --epochs 21 --resume auto --out b").code, 0);
}

TEST_F(PluginTraining, TheOperatorOfThePageTrains) {
  tiny::Model m = CustomModel();
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}},
             {"Tanh", {"h"}, {"t"}},
             {.type = "Blend", .inputs = {"t", "h", "mix"}, .outputs = {"b"}, .domain = "mine"},
             {"MatMul", {"b", "v"}, {"y"}}};
  m.Save(Path("m.onnx"));
  ExpectRefused(RunProcess(line_ + "--out a"), "mine.Blend");
  const Outcome o = RunProcess(StrCat(line_, "--out b --plugin ", TestLibrary("my_operators")));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("b")["trainable_parameters"], 48 + 8 + 24);
  EXPECT_GE(Summary("b")["eval"]["accuracy"].get<double>(), 0.95);
}

TEST_F(PluginTraining, TrainsAlikeEverywhere) {
  ASSERT_EQ(RunProcess(line_ + plugin_ + "--backend cpu --out cpu").code, 0);
  for (const std::string& backend : {std::string("torch"), TestLibrary("ten_operators"), TestLibrary("ten_device")}) {
    const Outcome o = RunProcess(StrCat(line_, plugin_, "--overwrite --out o --backend ", backend));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NEAR(Summary("o")["final_loss"].get<double>(), Summary("cpu")["final_loss"].get<double>(), 1e-4) << backend;
  }
  const Outcome half = RunProcess(line_ + plugin_ + "--mixed-precision bf16 --out half");
  EXPECT_EQ(half.code, 0) << half.err;
}

TEST_F(PluginTraining, RefusalsAreOneLine) {
  ExpectRefused(RunProcess(line_ + "--plugin ./libX.so --out r"), "--plugin ./libX.so: no such file");
  ExpectRefused(RunProcess(StrCat(line_, "--out r --plugin ", TestLibrary("ten_operators"))),
                "exports no OnnxtrainGetOperators");
}

}  // namespace
}  // namespace onnxtrain
