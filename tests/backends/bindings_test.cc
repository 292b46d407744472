#include "backends/bindings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/ops/builder.h"

namespace onnxtrain {
namespace {

using ::testing::HasSubstr;

class FakeBuffer : public Buffer {
 public:
  size_t size() const override { return sizeof(bytes_); }
  void* data() override { return bytes_; }
  absl::Status Write(size_t, std::span<const std::byte>) override { return absl::OkStatus(); }
  absl::Status Read(size_t, std::span<std::byte>) const override { return absl::OkStatus(); }
  std::byte* at(size_t offset) { return bytes_ + offset; }

 private:
  alignas(64) std::byte bytes_[256] = {};
};

// w ← w·w, and a second output y = exp(x)
class BindingsTest : public ::testing::Test {
 protected:
  BindingsTest() {
    Builder b(&graph_);
    const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {16}}),
              w = b.Input(InputKind::kParameter, "w", {DType::kFloat32, {16}});
    graph_.AddOutput("y", Exp(x).id());
    graph_.AddOutput("new_w", (w * w).id(), w.id());
    plan_ = PlanMemory(graph_, {});
    bindings_ = Bindings(graph_, plan_);
  }

  Graph graph_;
  MemoryPlan plan_;
  Bindings bindings_{graph_, plan_};
  FakeBuffer buffer_;
};

TEST_F(BindingsTest, NamesWhatIsMissing) {
  EXPECT_THAT(bindings_.CheckAllBound().message(), HasSubstr("input 'x'"));
  ASSERT_TRUE(bindings_.BindInput("x", {&buffer_, 0}).ok());
  EXPECT_THAT(bindings_.CheckAllBound().message(), HasSubstr("input 'w'"));
  ASSERT_TRUE(bindings_.BindInput("w", {&buffer_, 64}).ok());
  EXPECT_THAT(bindings_.CheckAllBound().message(), HasSubstr("output 'y'"));
  ASSERT_TRUE(bindings_.BindOutput("y", {&buffer_, 128}).ok());
  ASSERT_TRUE(bindings_.BindArena({&buffer_, 192}).ok());
  EXPECT_TRUE(bindings_.CheckAllBound().ok());
}

TEST_F(BindingsTest, RefusesUnknownNamesAndBuffersThatDoNotFit) {
  EXPECT_THAT(bindings_.BindInput("z", {&buffer_, 0}).message(), HasSubstr("no input 'z'"));
  EXPECT_THAT(bindings_.BindOutput("z", {&buffer_, 0}).message(), HasSubstr("no output 'z'"));
  EXPECT_THAT(bindings_.BindOutput("new_w", {&buffer_, 0}).message(), HasSubstr("lives in an input"));
  EXPECT_THAT(bindings_.BindInput("x", {nullptr, 0}).message(), HasSubstr("no buffer"));
  EXPECT_THAT(bindings_.BindInput("x", {&buffer_, 4}).message(), HasSubstr("no multiple of 64"));
  EXPECT_THAT(bindings_.BindInput("x", {&buffer_, 256}).message(), HasSubstr("needs 64 bytes"));
}

TEST_F(BindingsTest, MovesAnInputAndBack) {
  const Place x{.where = Place::Where::kInput, .index = 0};
  ASSERT_TRUE(bindings_.BindInput("x", {&buffer_, 64}).ok());
  EXPECT_EQ(bindings_.At(x), buffer_.at(64));
  EXPECT_TRUE(bindings_.MoveInput(0, buffer_.at(128)));
  EXPECT_FALSE(bindings_.MoveInput(0, buffer_.at(128)));
  EXPECT_EQ(bindings_.At(x), buffer_.at(128));
  EXPECT_TRUE(bindings_.MoveInput(0, nullptr));
  EXPECT_EQ(bindings_.At(x), buffer_.at(64));
}

}  // namespace
}  // namespace onnxtrain
