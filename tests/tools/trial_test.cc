// Models that start with `--model` alone: any batch axis, free sizes, inputs without a batch, several outputs, and
// batches that cannot be freed.
#include <nlohmann/json.hpp>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class Trial : public Scratch {
 protected:
  // The summary of a trial of m.onnx, {} where it fails.
  Json Train(const tiny::Model& m, const std::string& flags = "") {
    m.Save(Path("m.onnx"));
    last_ = Run("--model m.onnx --batch-size 6 --max-steps 3 --overwrite --out r " + flags);
    EXPECT_EQ(last_.code, 0) << last_.err;
    if (last_.code != 0) return {};
    EXPECT_TRUE(OnnxModel::Load(Path("r/model.synthetic.onnx")).ok());
    return Json::parse(ReadAll(Path("r/summary.json")));
  }

  void SaveNpy(const std::string& name, const HostTensor& tensor) const {
    const auto bytes = tensor.bytes();
    std::ofstream(Path(name), std::ios::binary)
        << *NpyPreamble(tensor.type()) << std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  bool HasMessage(const std::string& text) const { return last_.err.find(text) != std::string::npos; }

  Outcome last_;
};

// y[1,3]: the mean over everything is harmless with one sample, another function with more.
tiny::Model Mixing(int64_t batch) {
  tiny::Model m;
  m.input_shape = {batch, 4};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"ReduceMean", {"h"}, {"m"}}, {"Sub", {"h", "m"}, {"y"}}};
  m.weights = {{"w", {4, 3}, tiny::Uniform(12, 0.5f, 1)}};
  return m;
}

// h[5,1,8] of x[5,1,4], read as one sequence of 5: the last product keeps its rows apart, the batch is axis 1.
tiny::Model TimeMajor(int64_t batch) {
  tiny::Model m{.input_shape = {5, batch, 4}};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"Mul", {"h", "position"}, {"p"}}, {"Tanh", {"p"}, {"y"}}};
  m.weights = {{"w", {4, 8}, tiny::Uniform(32, 0.5f, 1)}, {"position", {5, 1, 8}, tiny::Uniform(40, 1, 2)}};
  return m;
}

TEST_F(Trial, ABatchThatCannotBeFreedBecomesTheMicroBatch) {
  for (int64_t batch : {1, 3}) {
    const Json summary = Train(Mixing(batch));
    ASSERT_FALSE(summary.is_null());
    EXPECT_EQ(summary["micro_batch"], batch);
    EXPECT_EQ(summary["accumulation"], 6 / batch);
    EXPECT_TRUE(HasMessage("bound to the batch of " + std::to_string(batch))) << last_.err;
  }
}

// The accumulation alone: the micro-batch is what the model takes, the global batch their product.
TEST_F(Trial, AFixedBatchAndTheAccumulationGiveTheGlobalBatch) {
  Mixing(1).Save(Path("m.onnx"));
  for (const int64_t steps : {5, 16, 64}) {
    const Outcome o =
        Run(StrCat("--model m.onnx --max-steps 1 --overwrite --out r --gradient-accumulation-steps ", steps));
    ASSERT_EQ(o.code, 0) << o.err;
    const Json summary = Json::parse(ReadAll(Path("r/summary.json")));
    EXPECT_EQ(summary["micro_batch"], 1);
    EXPECT_EQ(summary["accumulation"], steps);
  }
}

// The input declares no batch, but a constant has three rows.
TEST_F(Trial, ABatchMayBeFixedByAConstantAlone) {
  tiny::Model m{.input_shape = {-1, 4}};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"Add", {"h", "c"}, {"y"}}};
  m.weights = {{"w", {4, 5}, tiny::Uniform(20, 0.5f, 1)}, {"c", {3, 5}, tiny::Uniform(15, 0.5f, 2)}};
  const Json summary = Train(m);
  ASSERT_FALSE(summary.is_null());
  EXPECT_EQ(summary["micro_batch"], 3);
  EXPECT_EQ(summary["accumulation"], 2);
  const Outcome usual = Run("--model m.onnx --max-steps 1 --overwrite --out r");
  EXPECT_EQ(usual.code, 0) << "a batch that the user does not name is divided by it: " << usual.err;
  ExpectRefused(Run("--model m.onnx --batch-size 4 --max-steps 1 --overwrite --out r"), "bound to the batch of 3");
  HostTensor x({DType::kFloat32, {7, 4}}), label({DType::kInt64, {7}});
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  const Outcome data = Run("--model m.onnx --data d.npz --max-steps 1 --overwrite --out r");
  EXPECT_EQ(data.code, 0) << data.err;
  EXPECT_NE(data.err.find("bound to the batch of 3"), std::string::npos) << data.err;
}

TEST_F(Trial, AGlobalBatchThatAFixedBatchDoesNotDivideIsRefused) {
  Mixing(4).Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --batch-size 6 --max-steps 2 --out r");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("--batch-size 6"), std::string::npos) << o.err;
}

// Real data whose size a fixed batch does not divide: training leaves the rest out, predictions are complete.
TEST_F(Trial, AFixedBatchTrainsAndPredictsRealData) {
  Mixing(3).Save(Path("m.onnx"));
  HostTensor x({DType::kFloat32, {10, 4}}), y({DType::kInt64, {10}});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i % 7) - 3);
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", y}}).ok());
  const Outcome o = Run("--model m.onnx --data d.npz --batch-size 3 --epochs 2 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/summary.json")))["steps"], 6);
  const Outcome p = Run("predict --model r/model.onnx --data d.npz --out p.csv");
  ASSERT_EQ(p.code, 0) << p.err;
  const std::string csv = ReadAll(Path("p.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 11) << csv;
}

TEST_F(Trial, TheBatchMayBeAxisOne) {
  const Json summary = Train(TimeMajor(1));
  ASSERT_FALSE(summary.is_null());
  EXPECT_EQ(summary["micro_batch"], 6);
  EXPECT_TRUE(HasMessage("'x' has its batch on axis 1")) << last_.err;
}

// One sample of data is [5,4], and its prediction [5,8].
TEST_F(Trial, SamplesOfATimeMajorModelComeWithoutTheBatch) {
  TimeMajor(-1).Save(Path("m.onnx"));
  HostTensor x({DType::kFloat32, {7, 5, 4}}), y({DType::kFloat32, {7, 5, 8}});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i % 5) - 2);
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", y}}).ok());
  const Outcome o = Run("grad --model m.onnx --data d.npz --out g.npz");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto arrays = ReadNpz(Path("g.npz"));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const auto output = std::ranges::find_if(*arrays, [](const auto& a) { return a.first.ends_with("y"); });
  ASSERT_NE(output, arrays->end());
  EXPECT_EQ(output->second.shape(), (Shape{7, 5, 8}));
}

TEST_F(Trial, OutputsWithoutABatchAreNoObstacle) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.push_back({"Mul", {"w1", "w1"}, {"penalty"}});
  m.outputs = {"penalty", "y"};
  ASSERT_FALSE(Train(m).is_null());
  EXPECT_TRUE(HasMessage("on output 'y'")) << last_.err;
  EXPECT_FALSE(HasMessage("'penalty' f32")) << last_.err;
}

TEST_F(Trial, SeveralOutputsTrainOnTheSumOfTheirLosses) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.push_back({"MatMul", {"h", "w3"}, {"value"}});
  m.weights.push_back({"w3", {16, 1}, tiny::Uniform(16, 0.5f, 3)});
  m.outputs = {"y", "value"};
  ASSERT_FALSE(Train(m).is_null());
  EXPECT_TRUE(HasMessage("cross_entropy on output 'y'") && HasMessage("+ mse on output 'value'")) << last_.err;
  // With data the choice is the user's.
  HostTensor x({DType::kFloat32, {4, 4}}), label({DType::kInt64, {4}});
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  EXPECT_EQ(Run("bench --model m.onnx --batch-size 4 --max-steps 1 --steps-only").code, 0);
}

TEST_F(Trial, InputsWithoutABatchGetAConstant) {
  tiny::Model m = tiny::Mlp(3);
  m.more_inputs = {{"scale", {}}};
  m.nodes.push_back({"Mul", {"y", "scale"}, {"z"}});
  m.outputs = {"z"};
  ASSERT_FALSE(Train(m).is_null());
  EXPECT_TRUE(HasMessage("'scale' is a constant for all samples")) << last_.err;
  ASSERT_FALSE(Train(m, "--input scale=0.5").is_null());
  HostTensor x({DType::kFloat32, {6, 4}}), label({DType::kInt64, {6}});
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  const Outcome without = Run("grad --model m.onnx --data d.npz --out g.npz");
  EXPECT_EQ(without.code, 1);
  EXPECT_NE(without.err.find("--input scale="), std::string::npos) << without.err;
  // With a scale of 0 all classes are equally likely: the loss is ln 3.
  const Outcome with = Run("grad --model m.onnx --data d.npz --input scale=0 --out g.npz");
  EXPECT_EQ(with.code, 0) << with.err;
  EXPECT_NE(with.out.find("1.099"), std::string::npos) << with.out;
  EXPECT_EQ(Run("bench --model m.onnx --input x=3").code, 1);
}

TEST_F(Trial, AConstantMayBeAnArrayInAFile) {
  tiny::Model m = tiny::Mlp(3);
  m.more_inputs = {{"window", {3}}};
  m.input_shape = {-1, 4};
  m.nodes.push_back({"Mul", {"y", "window"}, {"z"}});
  m.outputs = {"z"};
  m.Save(Path("m.onnx"));
  HostTensor x({DType::kFloat32, {6, 4}}), label({DType::kInt64, {6}}), window({DType::kFloat32, {3}});
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  SaveNpy("window.npy", window);
  const Outcome o = Run("grad --model m.onnx --data d.npz --input window=@window.npy --out g.npz");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("1.099"), std::string::npos) << o.out;  // ln 3: zeros leave no class more likely
  EXPECT_EQ(Run("--model m.onnx --input window=@window.npy --max-steps 2 --out r").code, 0);
  SaveNpy("short.npy", HostTensor({DType::kFloat32, {2}}));
  const Outcome wrong = Run("grad --model m.onnx --data d.npz --input window=@short.npy --out g.npz");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("--input window=@short.npy"), std::string::npos) << wrong.err;
}

TEST_F(Trial, GradAndCompareMakeUpSamples) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  const Outcome grad = Run("grad --model m.onnx --batch-size 5 --num-classes 4 --out g.npz");
  ASSERT_EQ(grad.code, 0) << grad.err;
  EXPECT_NE(grad.err.find("no --data: 5 synthetic samples"), std::string::npos) << grad.err;
  const auto arrays = ReadNpz(Path("g.npz"));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const auto output = std::ranges::find_if(*arrays, [](const auto& a) { return a.first == "y"; });
  ASSERT_NE(output, arrays->end());
  EXPECT_EQ(output->second.shape(), (Shape{5, 4}));
  const Outcome compare = Run("compare --model m.onnx --json");
  EXPECT_EQ(compare.code, 0) << compare.err;
  EXPECT_TRUE(Json::parse(compare.out)["agrees"].get<bool>());
  EXPECT_EQ(Run("grad --model m.onnx --label 4 --out g.npz").code, 1);
  EXPECT_EQ(Run("eval --model m.onnx").code, 1);
}

// y[B,B]: the scores of two encoders against each other.
tiny::Model Contrastive(int64_t batch) {
  tiny::Model m{.input_shape = {batch, 4}};
  m.more_inputs = {{"t", {batch, 4}}};
  m.nodes = {{"MatMul", {"x", "w"}, {"a"}},
             {"MatMul", {"t", "v"}, {"b"}},
             {"Transpose", {"b"}, {"c"}},
             {"MatMul", {"a", "c"}, {"y"}}};
  m.weights = {{"w", {4, 8}, tiny::Uniform(32, 0.5f, 1)}, {"v", {4, 8}, tiny::Uniform(32, 0.5f, 2)}};
  return m;
}

TEST_F(Trial, OutputsMayHaveTheBatchTwice) {
  for (int64_t batch : {1, -1}) {
    const Json summary = Train(Contrastive(batch));
    ASSERT_FALSE(summary.is_null());
    EXPECT_EQ(summary["micro_batch"], 6);
    EXPECT_TRUE(HasMessage("on output 'y' f32[6,6]")) << last_.err;
  }
}

// The mean over the batch binds the model to one sample, whose only score gets another loss.
TEST_F(Trial, LabelsFollowABatchThatCannotBeFreed) {
  tiny::Model m = Contrastive(1);
  m.nodes.push_back({"ReduceMean", {"y"}, {"mean"}});
  m.nodes.push_back({"Sub", {"y", "mean"}, {"z"}});
  m.nodes.push_back({"Add", {"z", "y"}, {"scores"}});
  m.outputs = {"scores"};
  const Json summary = Train(m);
  ASSERT_FALSE(summary.is_null());
  EXPECT_EQ(summary["micro_batch"], 1);
  EXPECT_TRUE(HasMessage("bound to the batch of 1")) << last_.err;
}

// h[N,3] squeezed is h beside itself, unless N is 1.
TEST_F(Trial, AModelThatFailsWithOneSampleIsNotLeftWithOne) {
  tiny::Model m{.input_shape = {-1, 4}};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}},
             {"Squeeze", {"h"}, {"s"}},
             {.type = "Concat", .inputs = {"s", "h"}, .outputs = {"y"}, .numbers = {{"axis", 1}}}};
  m.weights = {{"w", {4, 3}, tiny::Uniform(12, 0.5f, 1)}};
  m.Save(Path("m.onnx"));
  std::string table = "a,b,c,d,label\n";
  for (int i = 0; i < 9; ++i) StrAppend(&table, "0.", i, ",1,2,", i, ",", i % 6, "\n");
  WriteAll(Path("t.csv"), table);
  const std::string line = "--model m.onnx --data t.csv --batch-size 4 --overwrite --out r --epochs 2 ";
  ExpectRefused(Run(line), "--batch-size 4: the last batch of an epoch has one sample, with which the model fails");
  ExpectRefused(Run("--model m.onnx --data t.csv --batch-size 6 --micro-batch-size 2 --overwrite --out r"),
                "--batch-size 6: the last batch of an epoch ends with one sample");
  for (const std::string flags : {"--drop-last", "--max-steps 2"}) {
    const Outcome o = Run(line + flags);
    EXPECT_EQ(o.code, 0) << o.err;
  }
  const Outcome page = Run("inspect --model m.onnx");
  EXPECT_NE(page.out.find("a batch of one sample fails: "), std::string::npos) << page.out;
  EXPECT_NE(page.out.find("nothing stands in the way"), std::string::npos) << page.out;
}

TEST_F(Trial, WeightsThatTheFileDoesNotHoldAreNamed) {
  tiny::Model m{.input_shape = {-1, 4}};
  m.more_inputs = {{"fc.weight", {4, 3}}};
  m.nodes = {{"MatMul", {"x", "fc.weight"}, {"y"}}};
  m.Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --out r");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("m.onnx: holds no weights: its nodes read them from the inputs 'fc.weight'"), std::string::npos)
      << o.err;
}

TEST_F(Trial, BenchPlanGradAndCompareTakeSurgery) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  HostTensor x({DType::kFloat32, {6, 4}}), label({DType::kInt64, {6}});
  for (int64_t i = 0; i < 6; ++i) label.SetInt(i, i % 5);
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  const Outcome bench = Run("bench --model m.onnx --num-classes 5 --max-steps 1 --steps-only");
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_NE(bench.err.find("re-initialized"), std::string::npos) << bench.err;
  const Outcome plan = Run("plan --model m.onnx --num-classes 5");
  EXPECT_EQ(plan.code, 0) << plan.err;
  const Outcome grad = Run("grad --model m.onnx --num-classes auto --data d.npz --out g.npz");
  ASSERT_EQ(grad.code, 0) << grad.err;
  const auto arrays = ReadNpz(Path("g.npz"));
  ASSERT_TRUE(arrays.ok());
  const auto bias = std::ranges::find_if(*arrays, [](const auto& a) { return a.first.ends_with("b2"); });
  ASSERT_NE(bias, arrays->end());
  EXPECT_EQ(bias->second.shape(), (Shape{5}));
  const Outcome compare = Run("compare --model m.onnx --num-classes 5 --data d.npz");
  EXPECT_EQ(compare.code, 0) << compare.err;
  EXPECT_NE(Run("grad --model m.onnx --data d.npz --out g.npz").code, 0);  // label 4 is none of 3 classes
}

}  // namespace
}  // namespace onnxtrain
