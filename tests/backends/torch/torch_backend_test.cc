// The torch backend as a backend: memory, binding, updates in place, errors. Its kernels are tested by tests/ops.
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/match.h"
#include "backends/bound_program.h"
#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/dequantize.h"
#include "frontend/ops/row.h"
#include "tests/test_device.h"

namespace onnxtrain {
namespace {

Backend& Torch() {
  static Backend* backend = [] {
    auto made = CreateBackend("torch", TestOptions("torch"));
    EXPECT_TRUE(made.ok()) << made.status();
    return std::move(made)->release();
  }();
  return *backend;
}

// A buffer that holds the tensor.
std::unique_ptr<Buffer> MakeBuffer(const HostTensor& tensor) {
  auto buffer = Torch().Allocate(tensor.bytes().size());
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_TRUE((*buffer)->Write(0, tensor.bytes()).ok());
  return *std::move(buffer);
}

std::vector<double> ReadValues(const Buffer& buffer, const Type& type) {
  HostTensor tensor(type);
  EXPECT_TRUE(buffer.Read(0, tensor.mutable_bytes()).ok());
  return tensor.ToDoubles();
}

struct Compiled {
  std::unique_ptr<Program> program;
  std::unique_ptr<Buffer> arena;

  explicit Compiled(const Graph& graph) {
    auto legal = Torch().Legalize(graph);
    EXPECT_TRUE(legal.ok()) << legal.status();
    auto made = Torch().Compile(*legal, {});
    EXPECT_TRUE(made.ok()) << made.status();
    program = *std::move(made);
    arena = *Torch().Allocate(program->memory().arena);
    EXPECT_TRUE(program->BindArena({arena.get(), 0}).ok());
  }
};

// y = x w + b, w' = w - 0.5 w; w' goes into w.
Graph Affine() {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 2}});
  const Val w = b.Input(InputKind::kParameter, "w", {DType::kFloat32, {2, 2}});
  const Val bias = b.Input(InputKind::kParameter, "b", {DType::kFloat32, {2}});
  graph.AddOutput("y", (MatMul(x, w) + bias).id());
  graph.AddOutput("new_w", (w - w * 0.5).id(), w.id());
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

const Type kSquare{DType::kFloat32, {2, 2}};

TEST(TorchBackend, RunsUpdatesInPlaceAndRebinds) {
  Compiled c(Affine());
  auto x = MakeBuffer(HostTensor::FromDoubles(kSquare, std::vector<double>{1, 2, 3, 4}));
  auto w = MakeBuffer(HostTensor::FromDoubles(kSquare, std::vector<double>{1, 0, 0, 1}));
  auto bias = MakeBuffer(HostTensor::FromDoubles({DType::kFloat32, {2}}, std::vector<double>{10, 20}));
  auto y = MakeBuffer(HostTensor(kSquare));
  EXPECT_FALSE(c.program->Run().ok()) << "inputs are not bound";
  ASSERT_TRUE(c.program->BindInput("x", {x.get(), 0}).ok());
  ASSERT_TRUE(c.program->BindInput("w", {w.get(), 0}).ok());
  ASSERT_TRUE(c.program->BindInput("b", {bias.get(), 0}).ok());
  ASSERT_TRUE(c.program->BindOutput("y", {y.get(), 0}).ok());
  ASSERT_TRUE(c.program->Run().ok());
  EXPECT_EQ(ReadValues(*y, kSquare), (std::vector<double>{11, 22, 13, 24}));
  EXPECT_EQ(ReadValues(*w, kSquare), (std::vector<double>{.5, 0, 0, .5}));
  auto other = MakeBuffer(HostTensor::FromDoubles(kSquare, std::vector<double>{2, 2, 2, 2}));
  ASSERT_TRUE(c.program->BindInput("x", {other.get(), 0}).ok());
  ASSERT_TRUE(c.program->Run().ok());
  EXPECT_EQ(ReadValues(*y, kSquare), (std::vector<double>{11, 21, 11, 21}));
  EXPECT_EQ(ReadValues(*w, kSquare), (std::vector<double>{.25, 0, 0, .25}));
}

TEST(TorchBackend, RefusesWhatDoesNotFit) {
  Compiled c(Affine());
  auto small = Torch().Allocate(8);
  EXPECT_FALSE(c.program->BindInput("x", {small->get(), 0}).ok());
  EXPECT_FALSE(c.program->BindInput("x", {nullptr, 0}).ok());
  EXPECT_FALSE(c.program->BindInput("nothing", {small->get(), 0}).ok());
  EXPECT_FALSE(c.program->BindOutput("new_w", {small->get(), 0}).ok()) << "it lives where w lives";
  std::byte bytes[16];
  EXPECT_FALSE((*small)->Read(0, bytes).ok());
  EXPECT_FALSE((*small)->Write(8, {bytes, 1}).ok());
}

TEST(TorchBackend, BuffersStartZeroedAndAligned) {
  auto buffer = Torch().Allocate(1000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
  EXPECT_EQ(ReadValues(**buffer, {DType::kUInt8, {1000}}), std::vector<double>(1000, 0));
}

TEST(TorchBackend, NamesEveryNodeThatItCannotRun) {
  static const auto* foreign = new std::vector<OpRow>{
      {.name = "test.Foreign",
       .infer = [](const TypeContext& c) -> absl::StatusOr<std::vector<Type>> { return std::vector<Type>{c.in(0)}; }}};
  RegisterOps(*foreign);
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {3}});
  b.set_source("first");
  const Val y = b.Op("test.Foreign", {x});
  b.set_source("second");
  graph.AddOutput("y", b.Op("test.Foreign", {y}).id());
  ASSERT_TRUE(b.status().ok()) << b.status();
  const absl::Status status = Torch().Legalize(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("first"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("second"), absl::string_view::npos) << status;
}

TEST(TorchBackend, AnErrorOfAKernelNamesTheNode) {
  const Type index = {DType::kInt64, {1, 1, 1, 1}}, gradient = {DType::kFloat32, {1, 1, 1, 1}};
  Graph graph;
  Builder b(&graph);
  const Val dy = b.Input(InputKind::kFeed, "dy", gradient), at = b.Input(InputKind::kFeed, "at", index);
  b.set_source("pool");
  graph.AddOutput("dx", b.Op("MaxPoolGrad", {dy, at}, {{"input_shape", std::vector<int64_t>{1, 1, 2, 2}}}).id());
  ASSERT_TRUE(b.status().ok()) << b.status();
  Compiled c(graph);
  HostTensor outside(index);
  outside.SetInt(0, 4);
  auto dy_buffer = MakeBuffer(HostTensor(gradient)), at_buffer = MakeBuffer(outside);
  auto dx_buffer = MakeBuffer(HostTensor({DType::kFloat32, {1, 1, 2, 2}}));
  ASSERT_TRUE(c.program->BindInput("dy", {dy_buffer.get(), 0}).ok());
  ASSERT_TRUE(c.program->BindInput("at", {at_buffer.get(), 0}).ok());
  ASSERT_TRUE(c.program->BindOutput("dx", {dx_buffer.get(), 0}).ok());
  const absl::Status status = c.program->Run();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("[MaxPoolGrad 'pool']"), absl::string_view::npos) << status;
}

// Numbers of 2 bits that are all 1, and scales in blocks of two rows: more elements than a tile has.
TEST(TorchBackend, MultipliesByLargeMatricesInTiles) {
  constexpr int64_t kRows = (1 << 15) + 7, kColumns = 1024;
  Graph graph;
  Builder b(&graph);
  const QuantizedMatrix m{
      .rows = kRows, .columns = kColumns, .bits = 2, .block_rows = 2, .block_columns = kColumns, .zero = 0};
  const QuantizedOperands w = {.q = b.Input(InputKind::kFrozen, "q", {DType::kUInt8, {kRows, kColumns / 4}}),
                               .scale = b.Input(InputKind::kFrozen, "scale", {DType::kFloat32, {m.scale_rows(), 1}}),
                               .matrix = m};
  const Val wide = b.Input(InputKind::kFeed, "wide", {DType::kFloat32, {2, kColumns}});
  const Val tall = b.Input(InputKind::kFeed, "tall", {DType::kFloat32, {2, kRows}});
  graph.AddOutput("rows", MatMulDequantized(wide, w, true).id());
  graph.AddOutput("columns", MatMulDequantized(tall, w, false).id());
  ASSERT_TRUE(b.status().ok()) << b.status();
  const auto legal = Torch().Legalize(graph);
  ASSERT_TRUE(legal.ok()) << legal.status();
  auto program = BoundProgram::Make(Torch(), *legal);
  ASSERT_TRUE(program.ok()) << program.status();
  HostTensor scale({DType::kFloat32, {m.scale_rows(), 1}}), ones({DType::kFloat32, {2, kRows}});
  double sum = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    if (r % 2 == 0) scale.Set(r / 2, static_cast<double>(r % 7 - 3));
    ones.Set(kRows + r, 1);
    sum += scale.At(r / 2);
  }
  ASSERT_TRUE(program->Set("q", HostTensor::Filled({DType::kUInt8, {kRows, kColumns / 4}}, 0x55)).ok());
  ASSERT_TRUE(program->Set("scale", scale).ok());
  ASSERT_TRUE(program->Set("wide", HostTensor::Filled({DType::kFloat32, {2, kColumns}}, 0.5)).ok());
  ASSERT_TRUE(program->Set("tall", ones).ok());
  ASSERT_TRUE(program->Run().ok());
  const HostTensor rows = program->Get("rows").value(), columns = program->Get("columns").value();
  for (int64_t r = 0; r < kRows; ++r) ASSERT_EQ(rows.At(kRows + r), scale.At(r / 2) * kColumns / 2) << r;
  for (int64_t c = 0; c < kColumns; ++c) {
    ASSERT_EQ(columns.At(c), 0) << c;
    ASSERT_EQ(columns.At(kColumns + c), sum) << c;
  }
}

TEST(TorchBackend, RefusesADeviceThatIsNotThereInOneLine) {
  for (const char* device : {"cuda:77", "cuda:0", "xpu", "toaster"}) {
    const auto backend = CreateBackend("torch", {.device = device});
    if (backend.ok()) continue;  // cuda:0 is there
    const absl::string_view message = backend.status().message();
    EXPECT_TRUE(absl::StartsWith(message, StrCat("device ", device))) << message;
    EXPECT_LT(message.size(), 240) << message;
    EXPECT_EQ(message.find('\n'), absl::string_view::npos) << message;
  }
  EXPECT_FALSE(CreateBackend("torch", {.device = "cuda:77"}).ok());
}

TEST(TorchBackend, KeepValuesLetsThemBeFetched) {
  const Graph graph = Affine();
  auto program = Torch().Compile(graph, {.keep_values = true});
  ASSERT_TRUE(program.ok()) << program.status();
  auto arena = *Torch().Allocate((*program)->memory().arena);
  auto x = MakeBuffer(HostTensor::FromDoubles(kSquare, std::vector<double>{1, 2, 3, 4}));
  auto w = MakeBuffer(HostTensor::FromDoubles(kSquare, std::vector<double>{1, 0, 0, 1}));
  auto bias = MakeBuffer(HostTensor({DType::kFloat32, {2}}));
  auto y = MakeBuffer(HostTensor(kSquare));
  ASSERT_TRUE((*program)->BindArena({arena.get(), 0}).ok());
  ASSERT_TRUE((*program)->BindInput("x", {x.get(), 0}).ok());
  ASSERT_TRUE((*program)->BindInput("w", {w.get(), 0}).ok());
  ASSERT_TRUE((*program)->BindInput("b", {bias.get(), 0}).ok());
  ASSERT_TRUE((*program)->BindOutput("y", {y.get(), 0}).ok());
  ASSERT_TRUE((*program)->Run().ok());
  for (const Node& node : graph.nodes()) {
    if (node.op != "MatMul") continue;
    auto product = (*program)->Fetch(node.outputs[0]);
    ASSERT_TRUE(product.ok()) << product.status();
    EXPECT_EQ(product->ToDoubles(), (std::vector<double>{1, 2, 3, 4}));
  }
}

}  // namespace
}  // namespace onnxtrain
