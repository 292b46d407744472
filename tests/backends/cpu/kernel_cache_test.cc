// Kernels are prepared once for all nodes, graphs and compilations that need the same one.
#include <cmath>
#include <thread>

#include "frontend/ops/builder.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

// y = (x·w)·w …, `layers` products of [rows,n] and [n,n].
Graph Products(int64_t rows, int64_t n, int layers) {
  Graph graph;
  Builder b(&graph);
  Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {rows, n}});
  const Val w = b.Input(InputKind::kState, "w", {DType::kFloat32, {n, n}});
  for (int i = 0; i < layers; ++i) x = b.Op("MatMul", {x, w});
  graph.AddOutput("y", x.id());
  return graph;
}

std::unique_ptr<Backend> NewBackend() { return CreateBackend("cpu", {.threads = 1}).value(); }

TEST(KernelCache, PreparesEqualNodesOnce) {
  const auto backend = NewBackend();
  const Graph graph = backend->Legalize(Products(4, 8, 3)).value();
  const int64_t before = backend->PreparedKernels();
  ASSERT_TRUE(backend->Compile(graph, {}).ok());
  EXPECT_EQ(backend->PreparedKernels() - before, 1);
}

TEST(KernelCache, ServesWorkspacesAndLaterGraphs) {
  const auto backend = NewBackend();
  const Graph deep = backend->Legalize(Products(4, 8, 5)).value();
  const Graph shallow = backend->Legalize(Products(4, 8, 2)).value();
  ASSERT_TRUE(backend->Workspaces(deep).ok());
  const int64_t before = backend->PreparedKernels();
  const auto program = backend->Compile(deep, {});
  ASSERT_TRUE(program.ok());
  ASSERT_TRUE(backend->Compile(shallow, {}).ok());
  EXPECT_EQ(backend->PreparedKernels(), before);
}

TEST(KernelCache, ForgetsKernelsWithTheLastProgram) {
  const auto backend = NewBackend();
  const Graph graph = backend->Legalize(Products(4, 8, 1)).value();
  for (int prepared = 1; prepared <= 2; ++prepared) {
    const auto program = backend->Compile(graph, {});
    ASSERT_TRUE(program.ok() && backend->Compile(graph, {}).ok());
    EXPECT_EQ(backend->PreparedKernels(), prepared);
  }
}

TEST(KernelCache, DropsKernelsThatNoProgramHas) {
  const auto backend = NewBackend();
  const Graph four = backend->Legalize(Products(4, 8, 2)).value(), five = backend->Legalize(Products(5, 8, 1)).value();
  const auto kept = backend->Compile(four, {});
  auto dropped = backend->Compile(five, {});
  ASSERT_TRUE(kept.ok() && dropped.ok());
  backend->DropUnusedKernels();
  ASSERT_TRUE(backend->Compile(five, {}).ok());
  EXPECT_EQ(backend->PreparedKernels(), 2) << "both are in use";
  dropped->reset();
  backend->DropUnusedKernels();
  ASSERT_TRUE(backend->Compile(four, {}).ok());
  EXPECT_EQ(backend->PreparedKernels(), 2);
  ASSERT_TRUE(backend->Compile(five, {}).ok());
  EXPECT_EQ(backend->PreparedKernels(), 3);
}

TEST(KernelCache, TellsShapesAndAttributesApart) {
  const auto backend = NewBackend();
  ASSERT_TRUE(backend->Compile(backend->Legalize(Products(4, 8, 1)).value(), {}).ok());
  const int64_t before = backend->PreparedKernels();
  ASSERT_TRUE(backend->Compile(backend->Legalize(Products(5, 8, 1)).value(), {}).ok());
  EXPECT_EQ(backend->PreparedKernels(), before + 1);
  for (const bool keepdims : {false, true}) {
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {1, 1, 9}});
    graph.AddOutput("y", ReduceSum(x, {2}, keepdims).id());
    ASSERT_TRUE(backend->Compile(backend->Legalize(graph).value(), {}).ok());
  }
  EXPECT_EQ(backend->PreparedKernels(), before + 3);
}

// The kernel of x² is not that of x³.
TEST(KernelCache, TellsConstantsApart) {
  const auto backend = NewBackend();
  for (const double exponent : {2.0, 3.0, 0.5}) {
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {3}});
    graph.AddOutput("y", b.Op("Pow", {x, b.Scalar(DType::kFloat32, exponent)}).id());
    const HostTensor y = RunOnce(*backend, graph, {{"x", HostTensor::Filled({DType::kFloat32, {3}}, 4)}})[0];
    EXPECT_NEAR(y.At(0), std::pow(4, exponent), 1e-4);
  }
}

// Programs that share kernels run at the same time: each has run-time state of its own.
TEST(KernelCache, CopiesAreIndependent) {
  const auto backend = NewBackend();
  const Graph graph = backend->Legalize(Products(16, 16, 4)).value();
  std::vector<BoundProgram> programs;
  for (int i = 0; i < 2; ++i) {
    programs.push_back(BoundProgram::Make(*backend, graph).value());
    const double scale = i + 1;
    ASSERT_TRUE(programs[i].Set("x", HostTensor::Filled({DType::kFloat32, {16, 16}}, scale)).ok());
    ASSERT_TRUE(programs[i].Set("w", HostTensor::Filled({DType::kFloat32, {16, 16}}, 0.125)).ok());
  }
  std::vector<std::thread> threads;
  for (BoundProgram& program : programs) {
    threads.emplace_back([&program] {
      for (int run = 0; run < 200; ++run) ASSERT_TRUE(program.Run().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(programs[i].Get("y")->At(17), 16.0 * (i + 1));
}

}  // namespace
}  // namespace onnxtrain
