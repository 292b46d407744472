// Globs over weights, weight groups, and constant tables that are no weights.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "optim/config/weight_globs.h"
#include "optim/step/fixed_tables.h"
#include "optim/step/groups.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;

TEST(WeightGlobs, Modules) {
  EXPECT_THAT(ListModules("layer1.0.conv1.weight"), ElementsAre("layer1", "layer1.0", "layer1.0.conv1"));
  const auto of_node = ListModules("/layer1/layer1.0/conv1/Conv");
  EXPECT_EQ(of_node.back(), "layer1.0.conv1");
  EXPECT_THAT(of_node, testing::Contains("layer1.0"));
  EXPECT_THAT(ListModules("model/dense/kernel:0"), testing::IsSupersetOf({"model", "model/dense", "model.dense"}));
  EXPECT_THAT(ListModules("bias"), ElementsAre());
}

TEST(WeightGlobs, Matches) {
  struct Row {
    const char *pattern, *name, *consumer;
    bool matches;
  };
  const Row kRows[] = {
      {"fc.weight", "fc.weight", "Gemm Gemm_3", true},
      {"fc", "fc.weight", "Gemm Gemm_3", true},
      {"f", "fc.weight", "Gemm Gemm_3", false},
      {"Gemm_3", "fc.weight", "Gemm Gemm_3", true},
      {"Gemm *", "fc.weight", "Gemm Gemm_3", true},
      {"layer1.0.conv1", "onnx::Conv_12", "Conv /layer1/layer1.0/conv1/Conv", true},
      {"layer1.*", "onnx::Conv_12", "Conv /layer1/layer1.0/conv1/Conv", true},
      {"layer2*", "onnx::Conv_12", "Conv /layer1/layer1.0/conv1/Conv", false},
      {"w[0]", "w[0]", "", true},
      {"w[0]", "w0", "", true},
  };
  for (const Row& r : kRows)
    EXPECT_EQ(MatchesWeight(r.pattern, r.name, r.consumer), r.matches) << r.pattern << " " << r.name;
}

TEST(Groups, ByDecayAndRate) {
  const Type matrix{DType::kFloat32, {3, 4}}, vector{DType::kFloat32, {4}};
  const std::vector<WeightDecision> weights = {{.name = "a.w", .type = matrix, .trained = true},
                                               {.name = "a.bias", .type = vector, .trained = true},
                                               {.name = "frozen", .type = matrix},
                                               {.name = "head.w", .type = matrix, .trained = true}};
  const OptimizerSpec spec{.weight_decay = 0.1, .lr_factors = {{"head.w", 10}}};
  const auto groups = GroupWeights(spec, weights);
  ASSERT_TRUE(groups.ok());
  std::map<std::string, std::string> members;
  for (const WeightGroup& g : *groups) {
    for (const WeightDecision* w : g.members) members[w->name] = g.name;
  }
  EXPECT_EQ(members,
            (std::map<std::string, std::string>{{"a.w", "decay"}, {"a.bias", "plain"}, {"head.w", "decay×10"}}));
  EXPECT_FALSE(GroupWeights({.weight_decay = 0.1, .no_decay = "nothing*"}, weights).ok());
  EXPECT_FALSE(GroupWeights({.lr_factors = {{"nothing", 2}}}, weights).ok());
}

TEST(PositionTable, SinesAndCosinesAreNoWeights) {
  constexpr int64_t kRows = 40, kWidth = 16;
  HostTensor table({DType::kFloat32, {1, kRows, kWidth}}), halves({DType::kFloat32, {kRows, kWidth}});
  for (int64_t p = 0; p < kRows; ++p) {
    for (int64_t i = 0; i < kWidth / 2; ++i) {
      const double angle = static_cast<double>(p) / std::pow(10000.0, 2.0 * static_cast<double>(i) / kWidth);
      table.Set(p * kWidth + 2 * i, std::sin(angle));
      table.Set(p * kWidth + 2 * i + 1, std::cos(angle));
      halves.Set(p * kWidth + i, std::sin(angle));
      halves.Set(p * kWidth + kWidth / 2 + i, std::cos(angle));
    }
  }
  EXPECT_TRUE(IsSinusoidTable(table));
  EXPECT_TRUE(IsSinusoidTable(halves));
  for (const HostTensor& plain : {table, halves}) {  // standardized as a whole
    HostTensor rescaled = plain.Clone(), row = plain.Clone();
    for (int64_t i = 0; i < plain.size(); ++i) rescaled.Set(i, 0.15 * plain.At(i) - 0.06);
    EXPECT_TRUE(IsSinusoidTable(rescaled));
    row.Set(0, 0.5);
    EXPECT_FALSE(IsSinusoidTable(row));
  }
  HostTensor behind_a_token({DType::kFloat32, {1, kRows + 1, kWidth}});
  for (int64_t i = 0; i < table.size(); ++i) behind_a_token.Set(kWidth + i, table.At(i));
  EXPECT_TRUE(IsSinusoidTable(behind_a_token));
  table.Set(100, table.At(100) + 0.3);
  EXPECT_FALSE(IsSinusoidTable(table));
  EXPECT_FALSE(IsSinusoidTable(HostTensor({DType::kFloat32, {8, 8}})));
  EXPECT_FALSE(IsSinusoidTable(HostTensor::Filled({DType::kFloat32, {8, 8}}, std::sqrt(0.5))));
}

// Rotary embeddings keep sines and cosines apart.
TEST(PositionTable, SinesAloneAreNoWeights) {
  constexpr int64_t kRows = 16, kWidth = 4;
  HostTensor sines({DType::kFloat32, {1, kRows, kWidth}}), cosines({DType::kFloat32, {kRows, 1, kWidth}});
  HostTensor lines({DType::kFloat32, {kRows, kWidth}});
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const double angle = static_cast<double>(i / kWidth) / std::pow(100.0, static_cast<double>(i % kWidth) / kWidth);
    sines.Set(i, std::sin(angle));
    cosines.Set(i, std::cos(angle));
    lines.Set(i, angle);
  }
  EXPECT_TRUE(IsSinusoidTable(sines));
  EXPECT_TRUE(IsSinusoidTable(cosines));
  EXPECT_FALSE(IsSinusoidTable(lines));
  EXPECT_FALSE(IsSinusoidTable(HostTensor::Filled({DType::kFloat32, {kRows, kWidth}}, 1)));
  sines.Set(kWidth * 9 + 2, 0.5);
  EXPECT_FALSE(IsSinusoidTable(sines));
}

// The basis of seasons: cosines, the first of them ones, and sines over the steps of a forecast, by rows or by columns.
TEST(FixedTables, HarmonicsAreNoWeights) {
  constexpr int64_t kLines = 6, kSteps = 5;
  HostTensor rows({DType::kFloat32, {kLines, kSteps}}), columns({DType::kFloat32, {kSteps, kLines}});
  for (int64_t k = 0; k < kLines; ++k) {
    for (int64_t t = 0; t < kSteps; ++t) {
      const double angle = 2 * std::acos(-1.0) * static_cast<double>(k % 3 * t) / kSteps;
      const double x = k < 3 ? std::cos(angle) : std::sin(angle);
      rows.Set(k * kSteps + t, x);
      columns.Set(t * kLines + k, x);
    }
  }
  EXPECT_TRUE(IsSinusoidTable(rows));
  EXPECT_TRUE(IsSinusoidTable(columns));
  rows.Set(12, rows.At(12) + 0.01);
  EXPECT_FALSE(IsSinusoidTable(rows));
  EXPECT_FALSE(IsSinusoidTable(HostTensor::Filled({DType::kFloat32, {kLines, kSteps}}, 1)));
}

// Models compute biases of relative positions from such tables (Liu et al., 2022, "Swin Transformer V2").
TEST(FixedTables, CoordinatesOfGridsAreNoWeights) {
  HostTensor last({DType::kFloat32, {1, 5, 7, 2}}), first({DType::kFloat32, {1, 2, 35}});
  for (int64_t p = 0; p < 35; ++p) {
    const double y = std::log2(1.5 + static_cast<double>(p / 7)), x = std::cbrt(static_cast<double>(p % 7) - 3);
    last.Set(2 * p, y);
    last.Set(2 * p + 1, x);
    first.Set(p, x);
    first.Set(35 + p, y);
  }
  EXPECT_TRUE(IsCoordinateTable(last));
  EXPECT_TRUE(IsCoordinateTable(first));
  last.Set(33, 0.125);
  EXPECT_FALSE(IsCoordinateTable(last));
  EXPECT_FALSE(IsCoordinateTable(HostTensor({DType::kFloat32, {1, 5, 7, 2}})));
  EXPECT_FALSE(IsCoordinateTable(HostTensor::Filled({DType::kFloat32, {3, 64}}, 1)));
  HostTensor random({DType::kFloat32, {2, 64}});
  for (int64_t i = 0; i < 128; ++i) random.Set(i, std::sin(static_cast<double>(i * i)));
  EXPECT_FALSE(IsCoordinateTable(random));
}

TEST(FixedTables, PowersOfSpacedNumbersAreNoWeights) {
  HostTensor rows({DType::kFloat32, {3, 6}}), columns({DType::kFloat32, {6, 3}});
  for (int64_t k = 0; k < 3; ++k) {
    for (int64_t i = 0; i < 6; ++i) {
      const double power = std::pow(static_cast<double>(i) / 6, static_cast<double>(k));
      rows.Set(6 * k + i, power);
      columns.Set(3 * i + k, power);
    }
  }
  EXPECT_TRUE(IsPowerTable(rows));
  EXPECT_TRUE(IsPowerTable(columns));
  rows.Set(14, 0.5);
  EXPECT_FALSE(IsPowerTable(rows));
  EXPECT_FALSE(IsPowerTable(HostTensor::Filled({DType::kFloat32, {3, 6}}, 1)));
}

TEST(FixedTables, MasksAreNoWeights) {
  const Type type = {DType::kFloat32, {5, 5}};
  HostTensor mask(type);
  EXPECT_FALSE(IsAttentionMask(mask));  // masks nothing
  for (int64_t i = 0; i < 25; ++i) mask.Set(i, i % 5 <= i / 5 ? 0 : -1e4);
  EXPECT_TRUE(IsAttentionMask(mask));
  mask.Set(3, -std::numeric_limits<double>::infinity());
  EXPECT_FALSE(IsAttentionMask(mask));  // two different values: no mask
  EXPECT_FALSE(IsAttentionMask(HostTensor::Filled(type, -1e9)));
  HostTensor bias({DType::kFloat32, {5}});
  bias.Set(1, -1e9);
  EXPECT_FALSE(IsAttentionMask(bias));
}

}  // namespace
}  // namespace onnxtrain
