// Another number of classes, a head for an encoder, re-initialized weights, weights frozen or with a rate of their own:
// through the program, and what it wrote read back.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "tests/shared_files.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// x[batch,6,4] → tanh(x·w) [batch,6,8]: an encoder of sequences without a head.
tiny::Model Encoder() {
  tiny::Model m;
  m.input_shape = {-1, 6, 4};
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"Tanh", {"h"}, {"y"}}};
  m.weights = {{"w", {4, 8}, tiny::Uniform(32, 0.8f, 3)}};
  return m;
}

// The class is where the positions lie on average.
NamedArrays Sequences(int64_t n, uint32_t seed) {
  HostTensor x({DType::kFloat32, {n, 6, 4}}), y({DType::kInt64, {n}});
  const std::vector<float> noise = tiny::Uniform(n * 24, 1, seed);
  for (int64_t i = 0; i < n; ++i) {
    y.SetInt(i, i % 3);
    for (int64_t j = 0; j < 24; ++j) x.Set(i * 24 + j, noise[i * 24 + j] + (j % 4 == i % 3 ? 1 : 0));
  }
  return {{"x", x}, {"label", y}};
}

// BatchNorm behind the first product.
tiny::Model Normed() {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.insert(m.nodes.begin() + 2, {"BatchNormalization", {"h1", "scale", "shift", "mean", "var"}, {"n"}});
  m.nodes[3].inputs = {"n"};
  const std::vector<float> zeros(16, 0), ones(16, 1);
  for (const auto& [name, values] : {std::pair("scale", ones), {"shift", zeros}, {"mean", zeros}, {"var", ones}}) {
    m.weights.push_back({name, {16}, values});
  }
  return m;
}

class SurgeryTest : public RunScratch {
 protected:
  SurgeryTest() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    tiny::Mlp(3, "Softmax").Save(Path("soft.onnx"));
    Encoder().Save(Path("encoder.onnx"));
    Normed().Save(Path("normed.onnx"));
    EXPECT_TRUE(WriteNpz(Path("four.npz"), Blobs(200, {.classes = 4, .seed = 1})).ok());
    EXPECT_TRUE(WriteNpz(Path("four_test.npz"), Blobs(80, {.classes = 4, .seed = 2})).ok());
    EXPECT_TRUE(WriteNpz(Path("three.npz"), Blobs(99, {.classes = 3, .seed = 1})).ok());
    EXPECT_TRUE(WriteNpz(Path("seq.npz"), Sequences(300, 1)).ok());
    EXPECT_TRUE(WriteNpz(Path("seq_test.npz"), Sequences(90, 2)).ok());
  }

  std::shared_ptr<const OnnxModel> Load(const std::string& name) const {
    auto model = OnnxModel::Load(Path(name));
    EXPECT_TRUE(model.ok()) << model.status().message();
    return *model;
  }

  // A model on its own, read again, scores exactly as it did at the end of its run.
  void ReloadsTo(const std::string& run, const std::string& data) const {
    const Json summary = Summary(run);
    const Outcome o = Run(StrCat("eval --model ", run, "/model.onnx --data ", data, " --json --quiet"));
    ASSERT_EQ(o.code, 0) << o.err;
    const Json eval = Json::parse(o.out);
    EXPECT_NEAR(eval["loss"].get<double>(), summary["eval"]["loss"].get<double>(), 1e-6);
    EXPECT_EQ(eval["accuracy"], summary["eval"]["accuracy"]);
  }

  void Refuses(const std::string& line, const std::string& part) const {
    const Outcome o = Run(line + " --out x --quiet");
    EXPECT_EQ(o.code, 1) << line << "\n" << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << line << "\n" << o.err;
    EXPECT_FALSE(Exists("x/model.onnx"));
  }
};

TEST_F(SurgeryTest, AnotherNumberOfClasses) {
  for (const char* classes : {"4", "auto"}) {
    const Outcome o = Run(StrCat("--model soft.onnx --data four.npz --eval-data four_test.npz --num-classes ", classes,
                                 " --epochs 20 --lr 0.02 --overwrite --out r"));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("4 classes instead of 3"), std::string::npos) << o.err;
    EXPECT_GT(Summary("r")["eval"]["accuracy"], 0.95);
    const auto before = Load("soft.onnx"), after = Load("r/model.onnx");
    EXPECT_EQ(after->InitializerNames(), before->InitializerNames());
    EXPECT_EQ(after->outputs(), before->outputs());
    EXPECT_EQ(after->Initializer("w2")->shape(), (Shape{16, 4}));
    EXPECT_EQ(after->Initializer("b2")->shape(), Shape{4});
    EXPECT_EQ(after->Initializer("w1")->shape(), (Shape{4, 16}));
    ReloadsTo("r", "four_test.npz");
  }
}

TEST_F(SurgeryTest, WhatStandsBetweenIsNamed) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.push_back({"Relu", {"y"}, {"z"}});
  m.outputs = {"z"};
  m.Save(Path("relu.onnx"));
  Refuses("--model relu.onnx --data four.npz --num-classes 4", "[Relu 'z_node'] stands between 'z' and");
  tiny::Model tied = tiny::Mlp(4);
  tied.input_shape = {-1, 16};
  tied.nodes = {{"MatMul", {"x", "w2"}, {"h"}}, {"Transpose", {"w2"}, {"t"}}, {"MatMul", {"h", "t"}, {"y"}}};
  tied.Save(Path("tied.onnx"));
  Refuses("--model tied.onnx --num-classes 4", "tied");
  Refuses("--model encoder.onnx --data seq.npz --num-classes 3", "--head cls, mean or max");
  Refuses("--model soft.onnx --data four.npz --num-classes 3", "label 3");
  Refuses("--model soft.onnx --data four.npz --num-classes none", "--num-classes: expected auto");
  Refuses("--model soft.onnx --num-classes auto", "no --data");
}

// Before a softmax, activations and norms behind the classifier stay, the norm with one number per new class, and
// pooling.
TEST_F(SurgeryTest, WhatKeepsTheClassesStays) {
  tiny::Model normed = tiny::Mlp(3);
  normed.nodes.insert(normed.nodes.end(), {{"LeakyRelu", {"y"}, {"r"}},
                                           {"BatchNormalization", {"r", "scale", "shift", "mean", "var"}, {"n"}},
                                           {"LogSoftmax", {"n"}, {"z"}}});
  normed.outputs = {"z"};
  for (const char* name : {"scale", "shift", "mean", "var"}) normed.weights.push_back({name, {3}, {1, 2, 3}});
  normed.Save(Path("tail.onnx"));
  const Outcome o = Run(
      "--model tail.onnx --data four.npz --eval-data four_test.npz --num-classes 4 --epochs 40 --lr 0.02 --out tail");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(Summary("tail")["eval"]["accuracy"], 0.9);
  for (const char* name : {"b2", "scale", "shift", "mean", "var"})
    EXPECT_EQ(Load("tail/model.onnx")->Initializer(name)->shape(), Shape{4}) << name;
  ReloadsTo("tail", "four_test.npz");

  tiny::Model pooled;
  pooled.input_shape = {-1, 2, 5, 5};
  pooled.nodes = {{"Conv", {"x", "w", "b"}, {"c"}},
                  {"Relu", {"c"}, {"r"}},
                  {"GlobalAveragePool", {"r"}, {"g"}},
                  {"Flatten", {"g"}, {"f"}},
                  {"Softmax", {"f"}, {"y"}}};
  pooled.weights = {{"w", {3, 2, 3, 3}, tiny::Uniform(54, 0.3f, 4)}, {"b", {3}, {0, 0, 0}}};
  pooled.Save(Path("pooled.onnx"));
  ASSERT_EQ(Run("--model pooled.onnx --num-classes 7 --max-steps 2 --out pooled").code, 0);
  EXPECT_EQ(Load("pooled/model.synthetic.onnx")->Initializer("w")->shape(), (Shape{7, 2, 3, 3}));

  tiny::Model mixed = tiny::Mlp(3);
  mixed.nodes.insert(mixed.nodes.end(), {{"ReduceMean", {"y"}, {"m"}}, {"Softmax", {"m"}, {"z"}}});
  mixed.outputs = {"z"};
  mixed.Save(Path("mixed.onnx"));
  Refuses("--model mixed.onnx --num-classes 4", "output 'z' would become");
}

// Before anything is trained.
TEST_F(SurgeryTest, InspectAndExportOperateToo) {
  const Outcome looked = Run("inspect --model soft.onnx --num-classes 5 --json");
  ASSERT_EQ(looked.code, 0) << looked.err;
  EXPECT_EQ(Json::parse(looked.out)["output_types"]["y"]["shape"][1], 5);
  const Outcome headed = Run("inspect --model encoder.onnx --head mean --num-classes 3 --json");
  ASSERT_EQ(headed.code, 0) << headed.err;
  EXPECT_EQ(Json::parse(headed.out)["outputs"], Json({"logits"}));
  const Outcome o = Run("export --model soft.onnx --num-classes 5 --reinit w1 --seed 3 --out five.onnx");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Load("five.onnx")->Initializer("w2")->shape(), (Shape{16, 5}));
  EXPECT_FALSE(Load("five.onnx")->Initializer("w1")->SameBytes(*Load("soft.onnx")->Initializer("w1")));
  EXPECT_NE(Run("export --model soft.onnx --out six.onnx").err.find("--weights: missing"), std::string::npos);
}

TEST_F(SurgeryTest, OtherCommandsTakeTheChangedModel) {
  const std::string classes = "--model m.onnx --num-classes 4";
  const std::string head = "--model encoder.onnx --head mean --num-classes 3";
  for (const std::string& model : {classes, head}) {
    const std::string shape = model == head ? "f32[8,3]" : "f32[8,4]";
    const std::string data = model == head ? " --data seq.npz" : " --data four.npz";
    Outcome o = Run("plan --batch-size 8 --json " + model);
    ASSERT_EQ(o.code, 0) << o.err;
    o = Run("bench --batch-size 8 --max-steps 1 " + model);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE((o.out + o.err).find(shape), std::string::npos) << o.out << o.err;
    o = Run(StrCat("grad --batch-size 8 --out g.npz ", model, data));
    ASSERT_EQ(o.code, 0) << o.err;
    const auto arrays = ReadNpz(Path("g.npz"));
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    const auto has_shape = [&](const auto& array) { return ToString(array.second.type()) == shape; };
    EXPECT_TRUE(std::ranges::any_of(*arrays, has_shape));
    o = Run(StrCat("compare --batch-size 8 ", model, data));
    ASSERT_EQ(o.code, 0) << o.err << o.out;
  }
}

TEST_F(SurgeryTest, HeadsForEncoders) {
  for (const char* head : {"cls", "mean", "max"}) {
    const Outcome o = Run(StrCat("--model encoder.onnx --data seq.npz --eval-data seq_test.npz --head ", head,
                                 " --num-classes auto --epochs 30 --lr 0.02 --overwrite --out r"));
    ASSERT_EQ(o.code, 0) << o.err;
    const auto model = Load("r/model.onnx");
    EXPECT_EQ(model->outputs(), std::vector<std::string>{"logits"});
    ASSERT_NE(model->Initializer("head.weight"), nullptr);
    EXPECT_EQ(model->Initializer("head.weight")->shape(), (Shape{3, 8}));
    EXPECT_EQ(model->Initializer("head.bias")->shape(), Shape{3});
    if (std::string(head) == "mean") {
      EXPECT_GT(Summary("r")["eval"]["accuracy"], 0.9);
    }
    ReloadsTo("r", "seq_test.npz");
  }
  Refuses("--model encoder.onnx --data seq.npz --head mean", "--num-classes");
  Refuses("--model soft.onnx --data four.npz --head mean --num-classes 4", "has a head already");
}

TEST_F(SurgeryTest, DrawnWeightsDependOnSeedAndNameAlone) {
  const std::string line =
      "--model m.onnx --data three.npz --max-steps 1 --backend cpu --threads 1 --overwrite --quiet --out ";
  const auto model = [&](const std::string& folder, const std::string& flags) {
    const Outcome o = Run(line + folder + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return ReadAll(Path(folder + "/model.onnx"));
  };
  const std::string both = model("a", " --reinit w1 --reinit 'w2'");
  EXPECT_EQ(both, model("b", " --reinit 'w2' --reinit w1"));
  EXPECT_EQ(both, model("c", " --reinit 'w*'"));
  EXPECT_NE(both, model("d", " --reinit 'w*' --seed 43 --no-shuffle"));
  EXPECT_NE(both, model("e", ""));
  const Outcome o = Run("--model normed.onnx --data three.npz --max-steps 1 --reinit 'w*' --reinit scale --out f");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("re-initialized: w1 f32[4,16]: uniform ±1.225: Kaiming, fan in 4 (before Relu)"),
            std::string::npos)
      << o.err;
  EXPECT_NE(o.err.find("Xavier, fans 16 and 3"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("re-initialized: scale f32[16]: 1: of a norm"), std::string::npos) << o.err;
  Refuses("--model m.onnx --data three.npz --reinit 'nothing*'", "--reinit nothing*: matches no");
}

TEST_F(SurgeryTest, FrozenScalesKeepTheirStatistics) {
  const auto unchanged = [&](const std::string& flags, const char* name) {
    const Outcome o = Run("--model normed.onnx --data three.npz --epochs 1 --overwrite --out r " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err.find("whose scale is frozen: 1, they stay in inference mode") != std::string::npos, !flags.empty())
        << o.err;
    return Load("r/model.onnx")->Initializer(name)->SameBytes(*Load("normed.onnx")->Initializer(name));
  };
  for (const char* name : {"mean", "var", "scale"}) {
    EXPECT_FALSE(unchanged("", name)) << name;
    EXPECT_TRUE(unchanged("--freeze scale", name)) << name;
  }
  EXPECT_FALSE(unchanged("--freeze scale", "w1"));
  Refuses("--model m.onnx --data three.npz --freeze 'q*'", "--freeze q*: matches no");
  Refuses("--model m.onnx --data three.npz --train 'q*'", "--train q*: matches no");
}

TEST_F(SurgeryTest, RatesOfTheirOwn) {
  const Outcome o =
      Run("--model m.onnx --data three.npz --max-steps 1 --lr 1e-3 --lr 'w2=0.05' --lr b1=1e-9 --no-shuffle --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("0.05 for w2 (--lr w2=0.05)"), std::string::npos) << o.err;
  const auto before = Load("m.onnx"), after = Load("r/model.onnx");
  const auto moved = [&](const char* name) {
    double most = 0;
    for (int64_t i = 0; i < before->Initializer(name)->size(); ++i) {
      most = std::max(most, std::abs(after->Initializer(name)->At(i) - before->Initializer(name)->At(i)));
    }
    return most;
  };
  // The first step of Adam is the rate, whatever the gradient.
  EXPECT_NEAR(moved("w1"), 1e-3, 1e-5);
  EXPECT_NEAR(moved("w2"), 0.05, 5e-4);
  EXPECT_LT(moved("b1"), 1e-7);
  EXPECT_NE(ReadAll(Path("r/config.flags")).find("--lr=w2=0.05\n"), std::string::npos);
  Refuses("--model m.onnx --data three.npz --lr 'q=1e-3'", "--lr q: matches no");
  Refuses("--model m.onnx --data three.npz --lr 1e-3 --lr 1e-4", "--lr: given twice");
}

TEST_F(SurgeryTest, AColumnSaysWhatIsForEvaluation) {
  std::string csv = "a,b,c,d,part,kind\n";
  const NamedArrays blobs = Blobs(60, {.classes = 3, .seed = 5});
  for (int64_t i = 0; i < 60; ++i) {
    for (int64_t j = 0; j < 4; ++j) StrAppend(&csv, blobs[0].second.At(i * 4 + j), ",");
    StrAppend(&csv, i % 5 == 0 ? "test" : "train", ",", i % 3, "\n");
  }
  WriteAll(Path("t.csv"), csv);
  const Outcome o = Run("--model m.onnx --data t.csv --eval-split part --epochs 1 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["data_samples"], 48);
  EXPECT_NE(o.err.find("12 samples"), std::string::npos) << o.err;
  EXPECT_GE(Summary("r")["time_split"]["optimizer"], 0);
  Refuses("--model m.onnx --data t.csv --eval-split kinds", "kinds");
}

TEST_F(SurgeryTest, InspectSaysWhoRunsWhat) {
  tiny::Model fixed = Normed();
  fixed.input_shape = {5, 4};
  fixed.Save(Path("fixed.onnx"));
  const Outcome o = Run("inspect --model fixed.onnx --json --backend torch");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  EXPECT_TRUE(json["trainable"]) << o.out;
  EXPECT_TRUE(json["backends"]["cpu"]["trains"]);
  EXPECT_TRUE(json["backends"]["torch"]["trains"]);
  for (const Json& op : json["operator_support"]) {
    EXPECT_TRUE(op["known"]);
    EXPECT_EQ(op["backends"]["cpu"], "kernel") << op;
    EXPECT_FALSE(op["gradient"].is_null()) << op;
  }
  EXPECT_NE(o.out.find("exported for a batch of 5"), std::string::npos);
  // libtorch takes long to load, and here nothing needs it.
  const Json alone = Json::parse(Run("inspect --model fixed.onnx --json --backend cpu").out);
  EXPECT_TRUE(alone["backends"]["cpu"]["trains"]);
  EXPECT_FALSE(alone["backends"].contains("torch"));
  tiny::Model odd = tiny::Mlp(3);
  odd.nodes[2].type = "Frobnicate";
  odd.Save(Path("odd.onnx"));
  EXPECT_NE(Run("inspect --model odd.onnx").out.find("Frobnicate is not supported: 'h_node'"), std::string::npos);
  // The batch of the file is the default.
  const Outcome run = Run("--model fixed.onnx --data three.npz --drop-last --max-steps 2 --out r");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Summary("r")["global_batch"], 5);
}

// --- models that others exported
// ----------------------------------------------------------------------------------------

TEST_F(SurgeryTest, FiveDigits) {
  SKIP_WITHOUT_SHARED("models");
  for (const bool eval : {false, true}) {
    const auto digits = OpenDataset(SharedPath("data/mnist_idx"), {.eval_split = eval});
    ASSERT_TRUE(digits.ok()) << digits.status().message();
    const int64_t wanted = eval ? 500 : 3000;
    HostTensor images({DType::kUInt8, {wanted, 28, 28}}), labels({DType::kInt64, {wanted}}),
        label((*digits)->columns()[1].sample);
    int64_t n = 0;
    for (int64_t i = 0; n < wanted && i < (*digits)->size(); ++i) {
      ASSERT_TRUE((*digits)->Read(i, 1, label.mutable_bytes()).ok());
      if (label.IntAt(0) >= 5) continue;
      ASSERT_TRUE((*digits)->Read(i, 0, images.mutable_bytes().subspan(n * 784, 784)).ok());
      labels.SetInt(n++, label.IntAt(0));
    }
    ASSERT_EQ(n, wanted);
    ASSERT_TRUE(WriteNpz(Path(eval ? "test.npz" : "train.npz"), {{"image", images}, {"label", labels}}).ok());
  }
  for (const char* model : {"mnist_cntk_opset8", "keras_mnist_cnn_opset12"}) {
    const Outcome o = Run(StrCat("--model ", SharedPath("models/"), model,
                                 ".onnx --data train.npz --eval-data test.npz --num-classes auto --epochs 2 "
                                 "--overwrite --out r"));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("a new head, 10× the rate of the rest"), std::string::npos) << o.err;
    EXPECT_GT(Summary("r")["eval"]["accuracy"], 0.95) << model;
    ReloadsTo("r", "test.npz");
  }
}

// Behind the last weights: Relu; batch norm; Relu and pooling over what the convolution sees. Weights in attributes of
// ai.onnx.ml, with a list of labels.
TEST_F(SurgeryTest, EndsOfOthers) {
  SKIP_WITHOUT_SHARED("models");
  struct End {
    const char *model, *weight;
    int64_t axis;
  };
  for (const End& end : {End{"models/cnn_mnist_pytorch_opset9", "fc2.weight", 0},
                         End{"models/mnist_burn_bn_opset16", "norm2.running_var", 0},
                         End{"conformance/light/light_squeezenet", "conv10_w_0", 0}}) {
    const Outcome o = Run(StrCat("--model ", SharedPath(end.model),
                                 ".onnx --num-classes 5 --batch-size 2 --max-steps 1 --overwrite --out r"));
    ASSERT_EQ(o.code, 0) << end.model << o.err;
    const auto model = Load("r/model.synthetic.onnx");
    const HostTensor* weight = model->Initializer(end.weight);
    ASSERT_NE(weight, nullptr) << end.model;
    EXPECT_EQ(weight->shape()[end.axis], 5) << end.model;
  }
  const Outcome o =
      Run(StrCat("--model ", SharedPath("models/sklearn_lr_mnist.onnx"), " --num-classes 5 --max-steps 20 --out r2"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("5 classes instead of 10"), std::string::npos) << o.err;
  const Outcome again = Run("inspect --model r2/model.synthetic.onnx --json");
  ASSERT_EQ(again.code, 0) << again.err;
  for (const Json& w : Json::parse(again.out)["weights"]) EXPECT_EQ(w["shape"][0], 5) << w;
}

// The class is whether a token of the upper half stands among those that are not masked.
TEST_F(SurgeryTest, ATransformerGetsAHead) {
  SKIP_WITHOUT_SHARED("models");
  for (const bool eval : {false, true}) {
    const int64_t n = eval ? 200 : 1500, length = 8;
    const Type type{DType::kInt64, {n, length}};
    HostTensor ids(type), mask(type), types(type), label({DType::kInt64, {n}});
    const std::vector<float> noise = tiny::Uniform(n * length, 1, eval ? 5 : 6);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t real = 4 + i % 5;
      for (int64_t j = 0; j < length; ++j) {
        mask.SetInt(i * length + j, j < real);
        const auto low = static_cast<int64_t>((noise[i * length + j] + 1) * 5);  // below 10
        ids.SetInt(i * length + j, j < real ? low : 15);                         // the padding would mislead
      }
      label.SetInt(i, i / 5 % 2);
      if (i / 5 % 2 == 1) ids.SetInt(i * length + i % real, 10 + i % 9);
    }
    ASSERT_TRUE(WriteNpz(Path(eval ? "test.npz" : "train.npz"),
                         {{"input_ids", ids}, {"attention_mask", mask}, {"token_type_ids", types}, {"label", label}})
                    .ok());
  }
  const Outcome o = Run(StrCat("--model ", SharedPath("models/"),
                               "vespa_dummy_transformer_opset12.onnx --data train.npz --eval-data test.npz --head mean "
                               "--num-classes 2 --epochs 6 --lr 3e-3 --out r"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("'attention_mask' does not mask"), std::string::npos) << o.err;
  EXPECT_GT(Summary("r")["eval"]["accuracy"], 0.9);
  ReloadsTo("r", "test.npz");
}

}  // namespace
}  // namespace onnxtrain
