#include "frontend/base/cancellation.h"

#include <gtest/gtest.h>

#include "frontend/graph/text_form.h"
#include "frontend/passes/pass.h"
#include "frontend/passes/pipeline.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

class CancellationTest : public testing::Test {
 protected:
  CancellationTest() { SetCancelFlag(&flag_); }
  ~CancellationTest() override { SetCancelFlag(nullptr); }

  std::atomic<bool> flag_{false};
  const Graph graph_ = *Parse("graph(feed %x: f32[2]) {\n  %y: f32[2] = Tanh(%x)\n  return %y \"y\"\n}\n");
};

TEST_F(CancellationTest, EndsPasses) {
  EXPECT_TRUE(Canonicalize(graph_).ok());
  flag_ = true;
  EXPECT_TRUE(absl::IsCancelled(Canonicalize(graph_).status()));
}

TEST_F(CancellationTest, EndsAPassThatIsRunning) {
  const Graph two =
      *Parse("graph(feed %x: f32[2]) {\n  %a: f32[2] = Tanh(%x)\n  %y: f32[2] = Tanh(%a)\n  return %y \"y\"\n}\n");
  int visited = 0;
  const auto rewritten = Rewrite(two, [&](Rewriter&, const Node&) -> std::optional<std::vector<Val>> {
    ++visited;
    flag_ = true;
    return std::nullopt;
  });
  EXPECT_TRUE(absl::IsCancelled(rewritten.status()));
  EXPECT_EQ(visited, 1);
}

TEST_F(CancellationTest, ScopesNest) {
  EXPECT_FALSE(IsPreparing());
  {
    const PreparingScope outer;
    { const PreparingScope inner; }
    EXPECT_TRUE(IsPreparing());
  }
  EXPECT_FALSE(IsPreparing());
}

}  // namespace
}  // namespace onnxtrain
