// A wheel's libtorch brings an OpenMP runtime and a protobuf of its own into the process.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/registry.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/builder.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

constexpr int64_t kRows = 256, kColumns = 512;

// Products and sums that are large enough for several threads.
Graph MakeGraph() {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {kRows, kColumns}});
  const Val w = b.Input(InputKind::kParameter, "w", {DType::kFloat32, {kColumns, kColumns}});
  graph.AddOutput("y", MatMul(b.Op("Tanh", {MatMul(x, w)}), w).id());
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

HostTensor Wave(const Type& type, double step) {
  HostTensor tensor(type);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, std::sin(step * static_cast<double>(i)) / 16);
  return tensor;
}

// A compiled graph with its memory.
class Runner {
 public:
  explicit Runner(const char* backend) {
    auto made = CreateBackend(backend, {.device = "cpu", .threads = 2});
    EXPECT_TRUE(made.ok()) << made.status();
    backend_ = *std::move(made);
    auto legal = backend_->Legalize(MakeGraph());
    EXPECT_TRUE(legal.ok()) << legal.status();
    program_ = *backend_->Compile(*legal, {});
    EXPECT_TRUE(program_->BindArena(Keep(HostTensor({DType::kUInt8, Bytes(program_->memory().arena)}))).ok());
    for (const GraphInput& input : program_->graph().inputs())
      EXPECT_TRUE(program_->BindInput(input.name, Keep(Wave(program_->graph().type(input.value), .37))).ok());
    y_ = Keep(HostTensor(kY));
    EXPECT_TRUE(program_->BindOutput("y", y_).ok());
  }

  std::vector<double> Run() {
    EXPECT_TRUE(program_->Run().ok());
    HostTensor y(kY);
    EXPECT_TRUE(y_.buffer->Read(0, y.mutable_bytes()).ok());
    return y.ToDoubles();
  }

 private:
  static inline const Type kY{DType::kFloat32, {kRows, kColumns}};
  static Shape Bytes(size_t size) { return {static_cast<int64_t>(size)}; }

  BufferView Keep(const HostTensor& tensor) {
    buffers_.push_back(*backend_->Allocate(tensor.bytes().size()));
    EXPECT_TRUE(buffers_.back()->Write(0, tensor.bytes()).ok());
    return {buffers_.back().get(), 0};
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::unique_ptr<Program> program_;
  BufferView y_;
};

TEST(OneProcess, RunsBothBackendsAndReadsModelsInTurn) {
  Runner cpu("cpu"), torch("torch_cuda");
  const std::vector<double> expected = cpu.Run();
  for (int round = 0; round < 3; ++round) {
    const std::vector<double> a = torch.Run(), b = cpu.Run();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], expected[i], 1e-5) << i;
    EXPECT_EQ(b, expected);
    const auto model = OnnxModel::Load(RepoPath("tests/models/exports/llama.dy.onnx"));
    EXPECT_TRUE(model.ok()) << model.status();
  }
}

TEST(OneProcess, OneLibtorchStays) {
  ASSERT_TRUE(CreateBackend("torch_cuda", {}).ok());
  const auto missing = CreateBackend("torch", {.device = "cuda:99"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().message().find('\n'), std::string::npos) << missing.status();
}

}  // namespace
}  // namespace onnxtrain
