// Tables as people keep them: text, missing values, columns of any scale, bad rows; through the program, in training
// and in what reads the trained model afterwards.
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

const char* const kColors[] = {"red", "blue, dark", "grün"};

// Targets around 200,000; every third row is of a color, every seventh age is missing.
std::string Houses(int64_t n, const std::string& odd_rows = "") {
  const std::vector<float> u = tiny::Uniform(2 * n, 1, 5);
  std::string text = "area,color,age,same,price\n";
  for (int64_t i = 0; i < n; ++i) {
    const double area = 1000 + 500 * u[2 * i], age = 50 + 40 * u[2 * i + 1];
    const int color = static_cast<int>(i % 3);
    StrAppend(&text, area, ",\"", kColors[color], "\",", i % 7 == 0 ? "" : StrCat(age), ",5,",
              std::to_string(150000 + 100 * area - 300 * age + 20000 * color), "\n");
  }
  return text + odd_rows;
}

// x[batch,inputs] → 16 → outputs.
tiny::Model Regression(int64_t inputs, int64_t outputs) {
  tiny::Model m = tiny::Mlp(outputs);
  m.input_shape = {-1, inputs};
  m.weights[0] = {"w1", {inputs, 16}, tiny::Uniform(16 * inputs, 0.5f, 1)};
  return m;
}

class Tables : public Scratch {
 protected:
  Outcome Train(const std::string& flags) { return Run("--model m.onnx --seed 3 --overwrite --out r " + flags); }
  Json ReadJson(const std::string& name) const { return Json::parse(ReadAll(Path(name))); }
  Json Evaluate(const std::string& flags) {
    const Outcome eval = Run("eval --json --model r/model.onnx " + flags);
    EXPECT_EQ(eval.code, 0) << eval.err;
    return eval.code == 0 ? Json::parse(eval.out) : Json();
  }
  void Refuses(const std::string& flags, const std::string& part) { ExpectRefused(Train(flags), part); }
};

constexpr char kPrepare[] =
    "--data t.csv --encode onehot --fill mean --standardize --scale-targets --eval-split 0.25 --epochs 40 --lr 0.01 ";

TEST_F(Tables, TrainedTransformsAreThoseOfTheModel) {
  Regression(6, 1).Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), Houses(400));
  const Outcome run = Train(kPrepare);
  ASSERT_EQ(run.code, 0) << run.err;
  const Json preprocess = ReadJson("r/preprocess.json");
  EXPECT_EQ(preprocess["inputs"]["x"]["columns"][1], "color=blue, dark");
  EXPECT_EQ(preprocess["inputs"]["x"]["std"][5], 1) << "of a constant column";
  const Json eval = ReadJson("r/summary.json")["eval"];
  EXPECT_GT(eval["r2"].get<double>(), 0.97);
  // The exported model predicts prices, wherever it lies.
  std::filesystem::create_directory(Path("elsewhere"));
  for (const char* name : {"model.onnx", "preprocess.json"})
    std::filesystem::copy_file(Path("r/" + std::string(name)), Path("elsewhere/" + std::string(name)));
  const Outcome predicted = Run("predict --model elsewhere/model.onnx --data t.csv --out -");
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  double price = 0;
  ASSERT_EQ(std::sscanf(predicted.out.c_str(), "sample,y\n0,%lf", &price), 1) << predicted.out.substr(0, 50);
  EXPECT_NEAR(price, 250000, 60000);
  for (const char* backend : {"cpu", "torch"}) {
    const Json whole = Evaluate(StrCat("--data t.csv --backend ", backend));
    EXPECT_GT(whole["r2"].get<double>(), 0.97) << backend;
    EXPECT_NEAR(std::sqrt(whole["loss"].get<double>()), whole["rmse"].get<double>(),
                1e-4 * whole["rmse"].get<double>());
  }
}

// Losses are in the unit of the standard deviation, metrics in that of the file; the model carries on where it was.
TEST_F(Tables, ScaledTargetsKeepTheirUnit) {
  Regression(6, 1).Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), Houses(200));
  ASSERT_EQ(Train(kPrepare).code, 0);
  // An error is to fall: the worst checkpoint, from before training, is not the best.
  const Outcome best = Train(StrCat(kPrepare, "--monitor rmse --export-weights best --save-every 1ep --keep-best 1"));
  ASSERT_EQ(best.code, 0) << best.err;
  EXPECT_GT(ReadJson("r/summary.json")["exported"]["step"].get<int64_t>(), 50);
  ASSERT_EQ(Train(kPrepare).code, 0);
  const Json eval = ReadJson("r/summary.json")["eval"];
  EXPECT_LT(eval["loss"].get<double>(), 1);
  const double rmse = eval["rmse"].get<double>();
  EXPECT_GT(rmse, 100);
  // The same samples are held out again, without any scaling.
  std::filesystem::copy(Path("r"), Path("first"));
  const Outcome again = Run(
      "--model first/model.onnx --data t.csv --eval-split 0.25 --seed 3 --max-steps 1 --lr 1e-30 --loss mse --out s");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NEAR(ReadJson("s/summary.json")["eval"]["rmse"].get<double>() / rmse, 1, 1e-4);
}

TEST_F(Tables, SeveralTargetsAreReportedOneByOne) {
  Regression(2, 2).Save(Path("m.onnx"));
  std::string text = "a,b,near,far\n";
  const std::vector<float> u = tiny::Uniform(400, 1, 9);
  for (int i = 0; i < 200; ++i)
    StrAppend(&text, u[2 * i], ",", u[2 * i + 1], ",", u[2 * i] - u[2 * i + 1], ",", 1e5 * (u[2 * i] + 3), "\n");
  WriteAll(Path("t.csv"), text);
  const Outcome run =
      Train("--data t.csv --label near,far --scale-targets --loss mse --eval-split 0.2 --epochs 40 --lr 0.01");
  ASSERT_EQ(run.code, 0) << run.err;
  const Json eval = Evaluate("--data t.csv --label near,far");
  EXPECT_LT(eval["rmse_0"].get<double>(), 0.3);
  EXPECT_GT(eval["rmse_1"].get<double>(), 10);
  EXPECT_LT(eval["rmse_1"].get<double>(), 3e4);
  EXPECT_GT(eval["r2_0"].get<double>(), 0.9);
  EXPECT_GT(eval["r2_1"].get<double>(), 0.9);
}

TEST_F(Tables, WhatCannotBeScaledOrTransformed) {
  Regression(6, 1).Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), Houses(40));
  WriteAll(Path("n.csv"), "a,b,c,d,e,f,y\n1,2,3,4,5,6,0\n1,2,3,4,5,7,1\n");
  Refuses("--data n.csv --encode onehot", "--encode: has no effect");
  Refuses("--data n.csv --encode y=index", "--encode y=index: 'y' is the label");
  Refuses("--data n.csv --fill z=mean", "--fill z=mean: there is no column 'z'");
  Refuses("--data n.csv --fill middle", "--fill: expected mean, median, most_frequent or a number");
  Refuses("--data n.csv --loss bce --scale-targets", "--scale-targets: loss bce on 'y' is no regression");
  Refuses("--standardize", "--standardize: has no effect: there is no --data");
  Refuses("--data t.csv", "--encode takes in text, --fill missing values");
  tiny::Model unbiased = Regression(6, 1);
  unbiased.nodes.pop_back();
  unbiased.nodes.back().outputs = {"y"};
  unbiased.weights.pop_back();
  unbiased.Save(Path("m.onnx"));
  Refuses(std::string(kPrepare), "has no bias, which the mean of the targets could be added to");
  tiny::Model bent = Regression(6, 1);
  bent.nodes.back().outputs = {"h3"};
  bent.nodes.push_back({"Tanh", {"h3"}, {"y"}});
  bent.Save(Path("m.onnx"));
  Refuses(std::string(kPrepare), "stands between");
  Regression(6, 1).Save(Path("m.onnx"));
  Refuses(std::string(kPrepare) + "--freeze w2", "'w2' of the last layer is not trained");
}

constexpr char kOddRows[] = "oops,red,1,5,1\n1,red,2,5\n1,red,3,5,\ninf,red,4,5,4\n";

TEST_F(Tables, BadSamplesAreLeftOut) {
  Regression(6, 1).Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), Houses(100, kOddRows));
  const std::string flags = "--data t.csv --encode onehot --fill mean --standardize --loss mse --epochs 2 ";
  EXPECT_EQ(Train(flags).code, 1);
  std::string first;
  for (const char* workers : {"0", "1", "3"}) {
    const Outcome run = Train(flags + "--on-bad-sample skip --num-workers " + workers);
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.err.find("left out 4 of 104 samples (--on-bad-sample skip): t.csv: row 102, column 'area': 'oops' is "
                           "not a number; t.csv: row 103 has 4 fields, row 1 has 5; t.csv: row 104, column 'price': "
                           "missing value; …"),
              std::string::npos)
        << run.err;
    EXPECT_EQ(ReadJson("r/summary.json")["samples"], 200);
    const std::string model = ReadAll(Path("r/model.onnx"));
    EXPECT_EQ(model, first.empty() ? model : first);
    first = model;
  }
  ExpectRefused(Run("eval --model r/model.onnx --data t.csv"),
                "row 103 has 4 fields, row 1 has 5 (--on-bad-sample skip leaves such samples out)");
  WriteAll(Path("odd.csv"), Houses(20, "oops,red,1,5,1\n"));
  ExpectRefused(Run("predict --model r/model.onnx --data odd.csv --out -"),
                "column 'area': 'oops' is not a number (--on-bad-sample skip leaves such samples out)");
  EXPECT_EQ(Evaluate("--data t.csv --on-bad-sample skip")["samples"], 100);
  const Outcome predicted = Run("predict --model r/model.onnx --data t.csv --on-bad-sample skip --out -");
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_NE(predicted.out.find("\n99,"), std::string::npos);
  EXPECT_NE(predicted.out.find("\n102,"), std::string::npos) << "a sample without label is none that is bad";
  EXPECT_EQ(predicted.out.find("\n100,"), std::string::npos);
  WriteAll(Path("t.csv"), "area,color,age,same,price\ninf,red,1,5,1\nnan,blue,2,5,3\n");
  Refuses("--data t.csv --encode onehot --input x=area,area,area,area,area,area --loss mse --on-bad-sample skip",
          "no sample is left: all 2 are bad");
}

TEST_F(Tables, GradientsLeaveBadSamplesOut) {
  Regression(4, 1).Save(Path("m.onnx"));
  WriteAll(Path("bad.csv"), "a,b,c,d,y\n1,2,3,4,1\nnan,2,3,4,2\n5,6,7,8,3\n");
  WriteAll(Path("good.csv"), "a,b,c,d,y\n1,2,3,4,1\n5,6,7,8,3\n");
  EXPECT_EQ(Run("grad --model m.onnx --data bad.csv --loss mse --out g.npz").code, 1);
  const Outcome skipped = Run("grad --model m.onnx --data bad.csv --loss mse --on-bad-sample skip --out g.npz");
  ASSERT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("left out 1 of 3 samples"), std::string::npos) << skipped.err;
  ASSERT_EQ(Run("grad --model m.onnx --data good.csv --loss mse --out h.npz").code, 0);
  EXPECT_EQ(ReadAll(Path("g.npz")), ReadAll(Path("h.npz")));
  const Outcome compared = Run("compare --model m.onnx --data bad.csv --loss mse --on-bad-sample skip");
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_NE(compared.err.find("left out 1 of 3 samples"), std::string::npos) << compared.err;
}

// Fits, scaled targets and left-out samples are the same when a run is continued.
TEST_F(Tables, ContinuedRunsAreTheSame) {
  Regression(6, 1).Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), Houses(100, kOddRows));
  const std::string flags =
      "--data t.csv --encode onehot --fill mean --standardize --scale-targets --eval-split 0.2 --on-bad-sample skip "
      "--epochs 4 --save-every 1ep --keep-last 9";
  const Outcome whole = Train(flags);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const int64_t steps = ReadJson("r/summary.json")["steps"];
  using std::filesystem::copy_options;
  std::filesystem::copy(Path("r"), Path("cut"), copy_options::recursive | copy_options::copy_symlinks);
  for (const char* name : {"cut/model.onnx", "cut/summary.json"}) std::filesystem::remove(Path(name));
  for (const auto& entry : std::filesystem::directory_iterator(Path("cut/checkpoints"))) {
    const std::string name = entry.path().filename().string();
    const bool later = name.starts_with("step-") && std::stoll(name.substr(5)) > steps / 2;
    if (later) std::filesystem::remove_all(entry.path());
  }
  const Outcome resumed = Run("--resume cut --quiet");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(ReadJson("cut/summary.json")["resumed_from"], steps / 2);
  EXPECT_EQ(ReadAll(Path("cut/model.onnx")), ReadAll(Path("r/model.onnx")));
  ExpectRefused(Run("export --model m.onnx --checkpoint r --out e.onnx"), "scaled the targets");
}

TEST_F(Tables, LabelsThatNoLossTakes) {
  tiny::Mlp(1, "Sigmoid").Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), "a,b,c,d,y\n1,2,3,4,0.5\n4,3,2,1,1.5\n1,1,1,1,0\n");
  Refuses("--data t.csv --loss bce", "t.csv: row 3, column 'y': 1.5 is outside of 0 to 1, the labels of bce");
  const Outcome run = Train("--data t.csv --loss bce --on-bad-sample skip --epochs 1");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("left out 1 of 3 samples"), std::string::npos) << run.err;
}

TEST_F(Tables, OneSampleBeforeBatchNormalization) {
  tiny::Model m = tiny::Mlp(2);
  m.nodes.insert(m.nodes.begin() + 2, {"BatchNormalization", {"h1", "scale", "shift", "mean", "var"}, {"n"}});
  m.nodes[3].inputs = {"n"};
  const std::vector<float> zeros(16, 0), ones(16, 1);
  for (const auto& [name, values] : {std::pair("scale", ones), {"shift", zeros}, {"mean", zeros}, {"var", ones}})
    m.weights.push_back({name, {16}, values});
  m.Save(Path("m.onnx"));
  std::string text = "a,b,c,d,y\n";
  for (int i = 0; i < 9; ++i) StrAppend(&text, i, ",2,3,4,", i % 2, "\n");
  WriteAll(Path("t.csv"), text);
  const std::pair<const char*, const char*> kCases[] = {
      {"--batch-size 4", "the last batch of an epoch has one sample"},
      {"--batch-size 4", "--drop-last leaves it out"},
      {"--batch-size 1", "batches have one sample (--batch-size)"},
      {"--batch-size 3 --micro-batch-size 1", "micro-batches have one sample (--micro-batch-size)"}};
  for (const auto& [flags, warning] : kCases) {
    const Outcome run = Train(StrCat("--data t.csv --epochs 1 ", flags));
    EXPECT_NE(run.err.find(warning), std::string::npos) << flags << "\n" << run.err;
  }
  for (const char* flags : {"--batch-size 4 --drop-last", "--batch-size 3", "--batch-size 1 --batch-norm frozen"}) {
    const Outcome run = Train(StrCat("--data t.csv --epochs 1 ", flags));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.err.find("one sample"), std::string::npos) << flags << "\n" << run.err;
  }
}

// 'c' is a class that only the evaluation data has; names get the numbers that training gave them.
TEST_F(Tables, ClassesByName) {
  tiny::Mlp(2).Save(Path("m.onnx"));
  std::string text = "a,b,c,d,y\n";
  for (int i = 0; i < 30; ++i) StrAppend(&text, i % 3, ",1,", i % 5, ",4,", std::string(1, "kmz"[i % 3]), "\n");
  WriteAll(Path("t.csv"), text);
  const Outcome run = Train("--data t.csv --num-classes auto --epochs 30 --lr 0.01");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(ReadJson("r/preprocess.json")["classes"], Json({"k", "m", "z"}));
  WriteAll(Path("z.csv"), "a,b,c,d,y\n2,1,0,4,z\n2,1,3,4,z\n");
  EXPECT_EQ(Evaluate("--data z.csv")["accuracy"], 1);
  WriteAll(Path("new.csv"), "a,b,c,d,y\n2,1,0,4,z\n2,1,3,4,w\n");
  ExpectRefused(Run("eval --model r/model.onnx --data new.csv"), "row 3, column 'y': 'w' is not among the 3 classes");
  EXPECT_EQ(Evaluate("--data new.csv --on-bad-sample skip")["samples"], 1);
  const Outcome in_training = Train("--data t.csv --eval-data new.csv --num-classes auto --epochs 1");
  EXPECT_EQ(in_training.code, 1);
  EXPECT_NE(in_training.err.find("'w' is not among the 3 classes"), std::string::npos) << in_training.err;
}

// Floats that are whole numbers are classes where classes are asked for; others, and many, are numbers.
TEST_F(Tables, WholeFloatsOfFewValuesAreClasses) {
  tiny::Mlp(2).Save(Path("m.onnx"));
  const auto write = [&](int values, double step) {
    std::string text = "a,b,c,d,y\n";
    for (int i = 0; i < 40; ++i)
      StrAppend(&text, i % 3, ",1,", i % 5, ",4,", absl::StrFormat("%.1f", 1 + i % values * step), "\n");
    WriteAll(Path("t.csv"), text);
  };
  write(4, 1);
  const Outcome run = Train("--data t.csv --num-classes auto --epochs 1");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(ReadJson("r/preprocess.json")["classes"], Json({"1", "2", "3", "4"}));
  EXPECT_NE(
      run.err.find("all labels are whole numbers, of which 4 differ: they are classes (--loss mse takes them for"),
      std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("labels 1 to 4 are names of the classes 0 to 3"), std::string::npos) << run.err;
  EXPECT_EQ(Evaluate("--data t.csv")["loss_name"], "cross_entropy");
  const Outcome numbers = Train("--data t.csv --num-classes auto --loss mse --epochs 1");
  EXPECT_NE(numbers.err.find("mse on output"), std::string::npos) << numbers.err;
  write(4, 0.5);
  EXPECT_NE(Train("--data t.csv --num-classes auto --epochs 1").err.find("mse on output"), std::string::npos);
  write(30, 1);
  EXPECT_NE(Train("--data t.csv --num-classes auto --epochs 1").err.find("mse on output"), std::string::npos);
}

// "a" and "A." are two classes of a table, which is told.
TEST_F(Tables, TwoSpellingsOfAClassAreTold) {
  tiny::Mlp(4).Save(Path("m.onnx"));
  std::string text = "a,b,c,d,y\n";
  for (int i = 0; i < 40; ++i)
    StrAppend(&text, i % 3, ",1,", i % 5, ",4,", std::vector<std::string>{"<=50K", "<=50K.", ">50K", "no"}[i % 4],
              "\n");
  WriteAll(Path("t.csv"), text);
  const Outcome run = Train("--data t.csv --epochs 1");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(
      run.err.find("warning: the classes '<=50K' and '<=50K.' differ in case, blanks, quotes or full stops alone"),
      std::string::npos)
      << run.err;
}

TEST_F(Tables, LargeColumnsAreToldWithTheFlagThatHelps) {
  tiny::Mlp(2).Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), "a,b,c,d,y\n1,2,300000,4,0\n4,3,2,1,1\n");
  const Outcome run = Train("--data t.csv --epochs 1");
  EXPECT_NE(run.err.find("large columns: 'c' (up to 3e+05) (--standardize brings columns to mean 0 and deviation 1)"),
            std::string::npos)
      << run.err;
  EXPECT_EQ(Train("--data t.csv --epochs 1 --standardize").err.find("large columns"), std::string::npos);
}

TEST_F(Tables, NumbersAreNoClasses) {
  Regression(2, 2).Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), Houses(40));
  Refuses(
      "--data t.csv --input x=area,same --label price",
      "is not an integer in range, as the labels of a loss on 2 classes are; numbers are trained with --loss mse and "
      "a --label column for each of the output's");
}

// What pipelines of scikit-learn export: an imputer for the numbers, an encoder for the text, a linear layer.
tiny::Model Pipeline() {
  const std::string kMl = "ai.onnx.ml";
  tiny::Model m{.input = "age", .input_shape = {-1, 1}, .more_inputs = {{"color", {-1, 1}}}, .text_inputs = {"color"}};
  tiny::Op imputer{"Imputer", {"age"}, {"filled"}, {}, {}, kMl};
  imputer.floats["imputed_value_floats"] = {50};
  imputer.factors["replaced_value_float"] = std::numeric_limits<float>::quiet_NaN();
  tiny::Op encoder{"LabelEncoder", {"color"}, {"place"}, {}, {}, kMl};
  encoder.texts["keys_strings"] = {kColors[0], kColors[1], kColors[2]};
  encoder.floats["values_floats"] = {10, 20, 30};
  encoder.factors["default_float"] = 40;
  m.nodes = {
      imputer, encoder, {"Concat", {"filled", "place"}, {"x"}, {}, {{"axis", 1}}}, {"MatMul", {"x", "w"}, {"y"}}};
  m.weights = {{"w", {2, 1}, {1, 1}}};
  return m;
}

TEST_F(Tables, ModelsThatEncodeStringsAndFillMissingValuesTakeThemAsTheyAre) {
  Pipeline().Save(Path("m.onnx"));
  WriteAll(Path("p.csv"), "age,color\n1,red\n,\"blue, dark\"\n3,pink\n4,\n");
  const Outcome predicted = Run("predict --model m.onnx --data p.csv --out p.out.csv");
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_EQ(ReadAll(Path("p.out.csv")), "sample,y\n0,11\n1,70\n2,43\n3,44\n");
  WriteAll(Path("t.csv"), Houses(60));
  const Outcome run = Train("--data t.csv --label price --epochs 2 --eval-split 0.25 --lr 0.1 --encode color=onehot");
  ExpectRefused(run, "--encode color=…: the column feeds an input of strings, which the model encodes");
  const Outcome trained = Train("--data t.csv --label price --epochs 2 --eval-split 0.25 --lr 0.1");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("column 'color' ← strings, which the model encodes"), std::string::npos) << trained.err;
  EXPECT_LT(Evaluate("--data t.csv")["loss"], Json::parse(Run("eval --json --model m.onnx --data t.csv").out)["loss"]);
  WriteAll(Path("u.csv"), "age,shade,price\n1,2,3\n4,5,6\n");
  Refuses("--data u.csv", "input 'color' takes strings: --input color=COLUMN says where they are, if not in 'shade'");
  EXPECT_EQ(Train("--data u.csv --input color=shade --max-steps 1").code, 0);
  // Samples of strings are made up without data, too.
  EXPECT_EQ(Train("--max-steps 2").code, 0);
  EXPECT_EQ(Run("bench --model m.onnx --data t.csv").code, 0);
  const Outcome inspected = Run("inspect --json --model m.onnx");
  EXPECT_EQ(Json::parse(inspected.out)["inputs"][1]["type"], "string");
}

// Grades of wine: the numbers are names, also where the test file has not all of them.
TEST_F(Tables, GradesArePredictedAsTheyAreWritten) {
  tiny::Mlp(3, "Softmax").Save(Path("m.onnx"));
  const auto table = [](int64_t n) {
    std::string text = "a,b,c,d,grade\n";
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = i % 3;
      StrAppend(&text, k == 0 ? 2 : 0, ",", k == 1 ? 2 : 0, ",", k == 2 ? 2 : 0, ",0.1,", 5 + k, "\n");
    }
    return text;
  };
  WriteAll(Path("t.csv"), table(60));
  WriteAll(Path("e.csv"), table(2));
  for (const char* flags : {"", "--num-classes auto "}) {
    const Outcome run = Train(StrCat("--data t.csv --eval-data e.csv --epochs 60 --lr 0.05 ", flags));
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.err.find("labels 5 to 7 are names of the classes 0 to 2"), std::string::npos) << run.err;
    EXPECT_EQ(ReadJson("r/preprocess.json")["classes"], Json({"5", "6", "7"}));
    EXPECT_EQ(Evaluate("--data e.csv")["accuracy"], 1);
    ASSERT_EQ(Run("predict --model r/model.onnx --data e.csv --out p.csv").code, 0);
    EXPECT_TRUE(ReadAll(Path("p.csv")).starts_with("sample,prediction,probability,p_5,p_6,p_7\n0,5,"));
  }
  ASSERT_EQ(Run("--resume r --epochs 61").code, 0);
  WriteAll(Path("e.csv"), "a,b,c,d,grade\n1,2,3,4,5\n1,2,3,4,8\n");
  const Outcome other = Run("eval --model r/model.onnx --data e.csv");
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("e.csv: row 3, column 'grade': label 8 is not among the model's classes 5, 6, 7"),
            std::string::npos)
      << other.err;
}

// The Adult data's test file has full stops behind the classes, which are told apart by one probability.
TEST_F(Tables, ClassesMayBeSpelledDifferently) {
  tiny::Mlp(1, "Sigmoid").Save(Path("m.onnx"));
  WriteAll(Path("t.csv"), "a,b,c,d,income\n1,2,3,4,<=50K\n4,3,2,1,>50K\n1,2,3,5,<=50K\n4,3,2,0,>50K\n");
  WriteAll(Path("e.csv"), "a,b,c,d,income\n1,2,3,4,<=50K.\n4,3,2,1,>50K.\n");
  const Outcome run = Train("--data t.csv --eval-data e.csv --epochs 60 --lr 0.05");
  ASSERT_EQ(run.code, 0) << run.err;
  const Outcome eval = Run("eval --model r/model.onnx --data e.csv");
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_NE(eval.err.find("'<=50K.' is read as the class '<=50K'"), std::string::npos) << eval.err;
  ASSERT_EQ(Run("predict --model r/model.onnx --data e.csv --out p.csv").code, 0);
  const std::string predictions = ReadAll(Path("p.csv"));
  EXPECT_NE(predictions.find("\n0,<=50K,"), std::string::npos) << predictions;
  EXPECT_NE(predictions.find("\n1,>50K,"), std::string::npos) << predictions;
}

}  // namespace
}  // namespace onnxtrain
