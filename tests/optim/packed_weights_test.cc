// Packed weights are computed in the program that reads them, or hoisted into a derive program once per update.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"
#include "optim/step/program/optimize.h"
#include "optim/step/session.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

// x[rows,256] · wᵀ.
Graph OneProduct(int64_t rows, InputKind kind, int readers) {
  Graph g;
  Builder b(&g);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {rows, 256}});
  const Val t = Transpose(b.Input(kind, "w", {DType::kFloat32, {256, 256}}), {1, 0});
  for (int i = 0; i < readers; ++i) g.AddOutput(StrCat("y", i), MatMul(i == 0 ? x : Tanh(x), t).id());
  EXPECT_TRUE(b.status().ok());
  return g;
}

bool Hoists(const Graph& g) {
  FusedGraph unfused{g, std::vector<ValueId>(g.values().size())};
  std::iota(unfused.values.begin(), unfused.values.end(), 0);
  return ShouldHoist(unfused)(g, g.nodes()[0]);
}

TEST(ShouldHoist, WhatTakesLongBesideItsProduct) {
  EXPECT_TRUE(Hoists(OneProduct(64, InputKind::kParameter, 1)));
  EXPECT_FALSE(Hoists(OneProduct(4096, InputKind::kParameter, 1)));
}

TEST(ShouldHoist, WhatNeverChangesAndWhatSeveralNodesRead) {
  EXPECT_TRUE(Hoists(OneProduct(4096, InputKind::kFrozen, 1)));
  EXPECT_TRUE(Hoists(OneProduct(4096, InputKind::kParameter, 2)));
}

class PackedWeights : public Scratch {
 protected:
  void SetUp() override {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return;
#endif
    GTEST_SKIP() << "oneDNN packs weights for AVX-512 only";
  }

  PackedWeights() : backend_(CreateBackend("cpu", {.threads = 1}).value()) { tiny::Wide().Save(Path("m.onnx")); }

  // Trained weights are packed to bf16.
  static bool PacksTrained() {
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
  }

  std::unique_ptr<Session> Planned(int64_t samples, int64_t micro, const std::string& frozen = "",
                                   int64_t width = 1024) {
    SessionOptions options{.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 15},
                           .micro_batch = micro,
                           .compute = frozen.empty() ? DType::kBFloat16 : DType::kFloat32,
                           .plan_only = true};
    options.import.input_shapes["x"] = {-1, width};
    if (!frozen.empty()) options.trainable.freeze = {frozen};
    auto session = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend_.get(), options);
    EXPECT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE((*session)->Plan(samples).ok());
    return *std::move(session);
  }

  // Names of the programs that contain packing nodes.
  static std::vector<std::string> Packing(const Session& session) {
    std::vector<std::string> names;
    for (const ProgramProfile& p : session.Profile()) {
      const auto& nodes = p.program->graph().nodes();
      const bool packs =
          std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.op == "cpu.PackWeight"; });
      if (packs) names.push_back(p.name);
    }
    return names;
  }

  std::unique_ptr<Backend> backend_;
};

using Names = std::vector<std::string>;

TEST_F(PackedWeights, OfAStepAreMadeInItAndNotKept) {
  if (!PacksTrained()) GTEST_SKIP() << "this processor multiplies no bf16";
  const auto session = Planned(2048, 2048);
  EXPECT_EQ(Packing(*session), Names{"step"});
  EXPECT_EQ(session->memory().packed, 0);
}

TEST_F(PackedWeights, OfFewRowsAreMadeOnceForAllMicroBatches) {
  if (!PacksTrained()) GTEST_SKIP() << "this processor multiplies no bf16";
  const auto many = Planned(4096, 2048);
  EXPECT_EQ(Packing(*many), (Names{"micro_first", "micro_next"}));
  EXPECT_EQ(many->memory().packed, 0);
  tiny::Wide({16384, 256, 16}).Save(Path("m.onnx"));
  const auto few = Planned(1024, 512, "", 16384);
  EXPECT_THAT(Packing(*few), testing::Contains("derive")) << "the wide weight";
  EXPECT_GE(few->memory().packed, 2048 * 2048 * 2);
}

TEST_F(PackedWeights, OfFrozenWeightsAreKeptForFewRows) {
  const auto session = Planned(128, 128, "w1");
  EXPECT_THAT(Packing(*session), testing::Contains("derive"));
  EXPECT_GE(session->memory().packed, 2048 * 2048 * 4);
}

TEST_F(PackedWeights, OfFrozenWeightsAreMadeOnce) {
  SessionOptions options{.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 15}};
  options.import.input_shapes["x"] = {-1, 1024};
  options.trainable.freeze = {"w1"};
  auto session = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend_.get(), options);
  ASSERT_TRUE(session.ok()) << session.status();
  const HostTensor x({DType::kFloat32, {128, 1024}}), labels({DType::kInt64, {128}});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*session)->Step({{"x", x}, {kLabelFeed, labels}}).ok());
  std::vector<int64_t> runs;
  for (const ProgramProfile& p : (*session)->Profile()) {
    if (std::string_view(p.name) == "derive") runs.push_back(p.runs);
  }
  EXPECT_THAT(runs, testing::ElementsAre(1));
}

TEST_F(PackedWeights, OfFrozenWeightsAreNotMadeForManyRows) {
  for (const int64_t rows : {512, 2048}) {
    const auto session = Planned(rows, rows, "w[12]");
    EXPECT_THAT(Packing(*session), testing::Not(testing::Contains("derive")));
    EXPECT_EQ(session->memory().packed, 0);
  }
}

}  // namespace
}  // namespace onnxtrain
