#include "frontend/graph/graph.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(Attrs, ChangingACopyLeavesTheOriginal) {
  const auto make = [] { return Attrs{{"axis", int64_t{1}}, {"perm", std::vector<int64_t>{1, 0}}}; };
  const Attrs a = make();
  Attrs b = a;
  b.Set("axis", int64_t{2});
  b.Erase("perm");
  b.Erase("no such attribute");
  EXPECT_EQ(a, make());
  EXPECT_EQ(b.Int("axis"), 2);
  EXPECT_FALSE(b.Has("perm"));
  EXPECT_EQ(b, (Attrs{{"axis", int64_t{2}}}));
}

TEST(Attrs, PointersOutliveChangesOfTheOnlyHolder) {
  Attrs a = {{"perm", std::vector<int64_t>{1, 0}}};
  const auto* perm = a.Find<std::vector<int64_t>>("perm");
  a.Set("axis", int64_t{1});
  EXPECT_EQ(a.Find<std::vector<int64_t>>("perm"), perm);
}

TEST(Graph, CopiesOfNodesKeepTypesNamesAndSources) {
  Graph from;
  const ValueId x = from.AddInput(InputKind::kFeed, "x", {DType::kFloat32, {2, 3}});
  from.AddNode("Neg", {x}, {}, {{DType::kFloat32, {2, 3}}}, "layer/neg");
  const ValueId y = from.nodes()[0].outputs[0];
  from.SetValueName(y, "y");
  Graph to;
  to.AddInput(InputKind::kFeed, "other", {DType::kFloat32, {}});
  const ValueId now = to.AddInput(InputKind::kFeed, "x", {DType::kFloat32, {2, 3}});
  const Node& copy = to.AddCopy(from, from.nodes()[0], {now});
  EXPECT_EQ(copy.outputs, ValueIds{2});
  EXPECT_EQ(*copy.source, "layer/neg");
  EXPECT_EQ(to.type(2), from.type(y));
  EXPECT_EQ(*to.value(2).name, "y");
  EXPECT_EQ(to.producer(2), &copy);
  to.SetValueName(2, "z");
  EXPECT_EQ(*from.value(y).name, "y");
}

TEST(Graph, TypesStayInPlaceWhileTheGraphGrows) {
  Graph graph;
  const ValueId x = graph.AddInput(InputKind::kFeed, "x", {DType::kFloat32, {2, 3}});
  const Type* type = &graph.type(x);
  for (int i = 0; i < 1000; ++i) graph.AddNode("Neg", {x}, {}, {*type});
  EXPECT_EQ(&graph.type(x), type);
  EXPECT_EQ(type->shape, (Shape{2, 3}));
}

}  // namespace
}  // namespace onnxtrain
