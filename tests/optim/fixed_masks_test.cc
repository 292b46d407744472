// Masks that follow from frozen weights become constants; all others stay operands.
#include "optim/step/fixed_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr int64_t kLength = 4;

HostTensor MakeCausalMask(int64_t length, double hidden = -1e4) {
  HostTensor mask({DType::kFloat32, {length, length}});
  for (int64_t i = 0; i < mask.size(); ++i) mask.Set(i, i % length > i / length ? hidden : 0);
  return mask;
}

// Attention over a feed, with a mask that `make` computes from the weight "mask".
struct Model {
  template <typename Make>
  Model(InputKind kind, HostTensor mask, Make make) {
    Builder b(&model.graph);
    const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, kLength, 8}});
    const Val weight = b.Input(kind, "mask", mask.type());
    model.weights.push_back({.name = "mask", .value = std::move(mask)});
    model.graph.AddOutput("y", b.Op("Attention", {x, x, x, make(b, weight)}, {{"scale", 0.5}}).id());
    EXPECT_TRUE(b.status().ok()) << b.status();
    EXPECT_TRUE(EmbedFixedMasks(&model).ok());
    EXPECT_TRUE(Verify(model.graph).ok()) << Verify(model.graph);
  }

  // Null where it is no constant.
  const HostTensor* FindMask() const {
    const auto attention = std::ranges::find(model.graph.nodes(), "Attention", &Node::op);
    return model.graph.FindConstant(attention->inputs[3]);
  }

  ImportedModel model;
};

const auto kAsItIs = [](Builder&, Val mask) { return mask; };

TEST(FixedMasks, AFrozenMaskIsAConstant) {
  const Model m(InputKind::kFrozen, MakeCausalMask(kLength), kAsItIs);
  ASSERT_NE(m.FindMask(), nullptr) << Print(m.model.graph);
  EXPECT_EQ(*m.FindMask(), MakeCausalMask(kLength));
  EXPECT_NE(m.model.graph.FindInput("mask"), nullptr) << "its weight is still bound";
}

// As models slice it from a table for their longest input.
TEST(FixedMasks, AndWhatIsComputedFromIt) {
  const Model m(InputKind::kFrozen, MakeCausalMask(9),
                [](Builder&, Val mask) { return Slice(Slice(mask, 0, 0, kLength), 1, 0, kLength); });
  ASSERT_NE(m.FindMask(), nullptr) << Print(m.model.graph);
  EXPECT_EQ(*m.FindMask(), MakeCausalMask(kLength));
}

TEST(FixedMasks, WhatIsTrainedOrFedStaysAnOperand) {
  EXPECT_EQ(Model(InputKind::kParameter, MakeCausalMask(kLength), kAsItIs).FindMask(), nullptr);
  const auto add_feed = [](Builder& b, Val mask) {
    return mask + b.Input(InputKind::kFeed, "padding", {DType::kFloat32, {1, kLength}});
  };
  EXPECT_EQ(Model(InputKind::kFrozen, MakeCausalMask(kLength), add_feed).FindMask(), nullptr);
}

// Of frozen numbers that hide nothing, such as relative positions, a backend gains nothing.
TEST(FixedMasks, OtherNumbersStayAnOperand) {
  HostTensor positions({DType::kFloat32, {kLength, kLength}});
  for (int64_t i = 0; i < positions.size(); ++i) positions.Set(i, 0.1 * static_cast<double>(i));
  EXPECT_EQ(Model(InputKind::kFrozen, positions, kAsItIs).FindMask(), nullptr);
}

}  // namespace
}  // namespace onnxtrain
