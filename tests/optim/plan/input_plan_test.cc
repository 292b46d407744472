// How inputs are fed: their batch axes, sizes of free dimensions, constants.
#include "optim/plan/input_plan.h"

#include <gmock/gmock.h>

#include "frontend/base/status.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

ModelInput Input(const std::string& name, const std::vector<std::string>& dims) {
  ModelInput input{name, DType::kFloat32};
  for (const std::string& dim : dims) {
    const bool fixed = dim[0] >= '0' && dim[0] <= '9';
    input.dims.push_back(fixed ? std::stoll(dim) : -1);
    input.dim_names.push_back(fixed ? "" : dim);
  }
  return input;
}

class InputPlanTest : public Scratch {
 protected:
  std::shared_ptr<const OnnxModel> Load(const tiny::Model& m) {
    m.Save(Path("m.onnx"));
    auto model = OnnxModel::Load(Path("m.onnx"));
    EXPECT_TRUE(model.ok()) << model.status();
    return *model;
  }

  InputPlan Plan(const tiny::Model& m, const InputRequest& request = {}) {
    auto plan = PlanInputs(*Load(m), request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  }
};

TEST_F(InputPlanTest, NamesTellTheBatchAxis) {
  EXPECT_TRUE(NamesBatch("batch_size") && NamesBatch("N") && NamesBatch("encoder_batch"));
  EXPECT_FALSE(NamesBatch("batch + past") || NamesBatch("sequence") || NamesBatch(""));
  const auto model = Load(tiny::Mlp(3));
  const auto guesses =
      GuessBatchAxes(*model, {Input("x", {"time", "batch", "6"}), Input("h", {"2", "batch", "8"}), Input("sr", {})});
  EXPECT_THAT(guesses.front(), ElementsAre(Pair("h", 1), Pair("sr", kNoBatchAxis), Pair("x", 1)));
}

// tf2onnx gives every free dimension a name of its own; a name that two inputs share is no batch of one of them.
TEST_F(InputPlanTest, NumberedDimensionsMayBeTheBatch) {
  const auto model = Load(tiny::Mlp(3));
  const auto numbered = GuessBatchAxes(*model, {Input("ids", {"unk__8", "12"}), Input("mask", {"unk__9", "12"})});
  EXPECT_TRUE(numbered.front().empty());
  const auto shared =
      GuessBatchAxes(*model, {Input("x", {"s0", "4"}), Input("q", {"s1", "4"}), Input("k", {"s1", "4"})});
  EXPECT_THAT(shared.front(), ElementsAre(Pair("k", kNoBatchAxis), Pair("q", kNoBatchAxis)));
}

TEST_F(InputPlanTest, LoneFreeDimensionsOfStatesMayBeTheBatch) {
  const auto model = Load(tiny::Mlp(3));
  const auto guesses =
      GuessBatchAxes(*model, {Input("x", {"", ""}), Input("state", {"2", "", "128"}), Input("mask", {"2", "time"})});
  EXPECT_THAT(guesses.front(), ElementsAre(Pair("mask", kNoBatchAxis), Pair("state", kNoBatchAxis)));
  EXPECT_THAT(guesses, testing::Contains(ElementsAre(Pair("mask", kNoBatchAxis), Pair("state", 1))));
}

TEST_F(InputPlanTest, ExtentsTellTheBatchAxis) {
  const auto model = Load(tiny::Mlp(3));
  const auto guesses = GuessBatchAxes(*model, {Input("ids", {"1", "4"}), Input("past", {"2", "1", "4", "3"})});
  EXPECT_THAT(guesses.front(), ElementsAre(Pair("past", 1)));
  // Only later ones take another axis of the first input.
  EXPECT_GT(guesses.size(), 1u);
}

TEST_F(InputPlanTest, SamplesComeWithoutTheBatchAxis) {
  const auto moved = MoveBatchFirst({Input("h", {"2", "batch", "8"})}, {{"h", 1}});
  EXPECT_THAT(moved[0].dims, ElementsAre(-1, 2, 8));
  EXPECT_THAT(moved[0].dim_names, ElementsAre("batch", "", ""));
}

TEST_F(InputPlanTest, EqualNamesHaveEqualSizes) {
  EXPECT_EQ(EvaluateDim("sequence", 32, 0), 32);
  EXPECT_EQ(EvaluateDim("past_length", 32, 1), 1);
  EXPECT_EQ(EvaluateDim("past_length + sequence + 1", 32, 0), 33);
  EXPECT_EQ(EvaluateDim("2*s0 + 3", 10, 0), 23);
  EXPECT_EQ(EvaluateDim("floor(s0/2)", 10, 0), -1);
}

// x[batch,S] + w[1,16]: sizes other than 16 and 1 do not broadcast.
TEST_F(InputPlanTest, SizesAreTriedUntilTheModelAcceptsOne) {
  tiny::Model m{.input_shape = {-1, -1}};
  m.nodes = {{"Mul", {"x", "w"}, {"y"}}};
  m.weights = {{"w", {1, 16}, tiny::Uniform(16, 1, 1)}};
  const InputPlan plan = Plan(m);
  EXPECT_TRUE(plan.problem.ok()) << plan.problem;
  EXPECT_THAT(plan.input_shapes.at("x"), ElementsAre(-1, 16));
}

// The matrix [16,4] widens; its bias has 16 elements.
TEST_F(InputPlanTest, TheBiasTellsTheWidthThatAGemmTakes) {
  tiny::Model m{.input_shape = {-1, -2}};
  m.nodes = {{"Gemm", {"x", "w", "b"}, {"y"}, {}, {{"transB", 1}}}};
  m.weights = {{"w", {16, 4}, tiny::Uniform(64, 1, 1)}, {"b", {16}, tiny::Uniform(16, 1, 2)}};
  const InputPlan plan = Plan(m);
  EXPECT_TRUE(plan.problem.ok()) << plan.problem;
  EXPECT_THAT(plan.input_shapes.at("x"), ElementsAre(-1, 4));
}

TEST_F(InputPlanTest, SamplesMayBeWholeInputs) {
  const tiny::Model m = tiny::Mlp(3);
  const InputPlan plan = Plan(m, {.batch_axis = false});
  EXPECT_TRUE(plan.problem.ok()) << plan.problem;
  EXPECT_THAT(plan.batch_axes, ElementsAre(Pair("x", kAddedBatchAxis), Pair("y", kAddedBatchAxis)));
  // A dimension that is named like a batch is one for any data.
  const auto model = Load(m);
  EXPECT_TRUE(GuessWholeSamples(*model, {Input("x", {"batch", "4"})}).empty());
  EXPECT_THAT(GuessWholeSamples(*model, {Input("x", {"points", "4"}), Input("t", {})}),
              testing::Contains(TakeWholeInputs({Input("x", {"points", "4"}), Input("t", {})})));
}

// w[3,21]·x[batch,s,4] and v[3,9]·t[batch,u,4]: each dimension has a size of its own, which no usual one is.
TEST_F(InputPlanTest, EveryDimensionMayNeedASizeOfItsOwn) {
  tiny::Model m{.input_shape = {-1, -1, 4}};
  m.more_inputs = {{"t", {-1, -1, 4}}};
  m.weights = {{"w", {3, 21}, tiny::Uniform(63, 1, 1)}, {"v", {3, 9}, tiny::Uniform(27, 1, 2)}};
  m.nodes = {{"MatMul", {"w", "x"}, {"a"}}, {"MatMul", {"v", "t"}, {"b"}}};
  m.outputs = {"a", "b"};
  m.Save(Path("m.onnx"));
  std::string bytes = ReadAll(Path("m.onnx"));
  const std::vector<std::string> names = {"batch", "dim_x", "batch", "dim_t"};
  size_t at = 0;
  for (const std::string& name : names) {
    at = bytes.find("batch", at);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, name.size(), name);
    at += name.size();
  }
  WriteAll(Path("m.onnx"), bytes);
  const auto model = OnnxModel::Load(Path("m.onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto plan = PlanInputs(**model, {});
  ASSERT_TRUE(plan.ok() && plan->problem.ok()) << plan->problem;
  EXPECT_THAT(plan->input_shapes.at("x"), ElementsAre(-1, 21, 4));
  EXPECT_THAT(plan->input_shapes.at("t"), ElementsAre(-1, 9, 4));
}

// Time is axis 0 of x and of the output: y[5,1,3] = x[5,1,4]·w + state[1,1,3].
TEST_F(InputPlanTest, FindsTheBatchByTracing) {
  tiny::Model m{.input_shape = {5, 1, 4}};
  m.more_inputs = {{"state", {2, 1, 3}}};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"ReduceMean", {"state"}, {"s"}}, {"Add", {"h", "s"}, {"y"}}};
  m.weights = {{"w", {4, 3}, tiny::Uniform(12, 1, 1)}, {"v", {5, 1, 1}, tiny::Uniform(5, 1, 1)}};
  m.nodes.push_back({"Mul", {"y", "v"}, {"z"}});  // binds axis 0 to 5
  m.outputs = {"z"};
  const InputPlan plan = Plan(m);
  EXPECT_TRUE(plan.problem.ok()) << plan.problem;
  EXPECT_EQ(plan.batch_axes.at("x"), 1);
  EXPECT_EQ(plan.batch_axes.at("state"), 1);
  EXPECT_EQ(plan.batch_axes.at("z"), 1);
  EXPECT_THAT(plan.input_shapes.at("x"), ElementsAre(-1, 5, 4));
}

TEST_F(InputPlanTest, InputsWithoutABatchAreConstants) {
  tiny::Model m = tiny::Mlp(3);
  m.more_inputs = {{"sr", {}}};
  m.nodes.push_back({"Mul", {"y", "sr"}, {"z"}});
  m.outputs = {"z"};
  EXPECT_EQ(Plan(m).fixed.at("sr").At(0), 16000);
  EXPECT_EQ(Plan(m, {.constants = {{"sr", "8000"}}}).fixed.at("sr").At(0), 8000);
  const auto wrong = PlanInputs(*Load(m), {.constants = {{"rate", "1"}}});
  EXPECT_THAT(std::string(ToStd(wrong.status().message())), HasSubstr("`input` rate=1: the model has no such input"));
}

}  // namespace
}  // namespace onnxtrain
