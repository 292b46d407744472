// Losses, metrics and what follows from evaluations, as people ask for them.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// x → kind (3 classes) and place (2 numbers).
tiny::Model TwoHeads() {
  tiny::Model m;
  m.outputs = {"kind", "place"};
  m.nodes = {{"MatMul", {"x", "w"}, {"h0"}},
             {"Relu", {"h0"}, {"h"}},
             {"MatMul", {"h", "a"}, {"kind"}},
             {"MatMul", {"h", "b"}, {"place"}}};
  m.weights = {{"w", {4, 16}, tiny::Uniform(64, 0.5f, 1)},
               {"a", {16, 3}, tiny::Uniform(48, 0.5f, 2)},
               {"b", {16, 2}, tiny::Uniform(32, 0.5f, 3)}};
  return m;
}

// Σ w·(place − goal)² over everything, and Σ w; or without weights the same for each number.
tiny::Model SquaredError(bool weighted) {
  tiny::Model m;
  m.input = "place";
  m.input_shape = {-1, 2};
  m.more_inputs = {{"goal", {-1, 2}}};
  m.nodes = {{"Sub", {"place", "goal"}, {"d"}}, {"Mul", {"d", "d"}, {"e"}}};
  if (weighted) {
    m.more_inputs["w"] = {-1, 1};
    m.nodes.push_back({"Mul", {"e", "w"}, {"we"}});
    m.nodes.push_back({"ReduceSum", {"we"}, {"loss_sum"}});
    m.nodes.push_back({"ReduceSum", {"w"}, {"weight"}});
    m.outputs = {"loss_sum", "weight"};
  } else {
    m.weights = {{"half", {2, 1}, {0.5f, 0.5f}}};
    m.nodes.push_back({"MatMul", {"e", "half"}, {"losses"}});
    m.outputs = {"losses"};
  }
  return m;
}

class Losses : public Scratch {
 protected:
  Losses() {
    TwoHeads().Save(Path("m.onnx"));
    tiny::Mlp(1, "Sigmoid").Save(Path("coin.onnx"));
    SquaredError(true).Save(Path("weighted.onnx"));
    SquaredError(false).Save(Path("plain.onnx"));
    constexpr int64_t kSamples = 84;
    HostTensor x({DType::kFloat32, {kSamples, 4}}), kind({DType::kInt64, {kSamples}}),
        coin({DType::kInt64, {kSamples}});
    HostTensor place({DType::kFloat32, {kSamples, 2}}), w({DType::kFloat32, {kSamples}});
    const std::vector<float> noise = tiny::Uniform(kSamples * 4, 1, 5);
    for (int64_t i = 0; i < kSamples; ++i) {
      for (int64_t j = 0; j < 4; ++j) x.Set(i * 4 + j, noise[i * 4 + j] + (j == i % 3 ? 1 : 0));
      for (int64_t j = 0; j < 2; ++j) place.Set(i * 2 + j, noise[i * 4 + j] * 2);
      kind.SetInt(i, i % 3);
      coin.SetInt(i, i % 3 == 0);
      w.Set(i, static_cast<double>(i % 5));
    }
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"kind", kind}, {"goal", place}, {"w", w}}).ok());
    EXPECT_TRUE(WriteNpz(Path("coin.npz"), {{"x", x}, {"label", coin}}).ok());
  }

  double EvalLoss(const std::string& flags) {
    const Outcome o = Run("eval --json --model r/model.onnx --data d.npz " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out)["loss"].get<double>() : std::nan("");
  }
  Json Summary() const { return Json::parse(ReadAll(Path("r/summary.json"))); }
  void Trains(const std::string& flags) {
    const Outcome o = Run("--overwrite --out r --quiet " + flags);
    ASSERT_EQ(o.code, 0) << o.err;
  }
  void Refuses(const std::string& flags, const std::string& part) {
    ExpectRefused(Run("--out x --quiet " + flags), part);
  }
};

TEST_F(Losses, ASumIsTheSumOfItsParts) {
  Trains("--model m.onnx --data d.npz --epochs 2 --loss 'ce:label=kind@kind+0.25*l1:label=goal@place'");
  const double both = EvalLoss("--loss 'ce:label=kind@kind+0.25*l1:label=goal@place'");
  const double kind = EvalLoss("--loss ce@kind --label kind"), place = EvalLoss("--loss l1@place --label goal");
  EXPECT_NEAR(both, kind + 0.25 * place, 1e-6 * both);
  const Outcome told = Run("eval --json --model r/model.onnx --data d.npz");
  EXPECT_NEAR(Json::parse(told.out)["cross_entropy@kind"].get<double>(), kind, 1e-6);
  EXPECT_NEAR(Json::parse(told.out)["l1@place"].get<double>(), place, 1e-6);
  EXPECT_NEAR(both, EvalLoss(""), 1e-12) << "preprocess.json has the loss";
  EXPECT_NEAR(both, EvalLoss("--batch-size 5"), 1e-6 * both);
}

TEST_F(Losses, AccumulationIsTheSameUpdate) {
  for (const char* loss :
       {"ce:label=kind@kind+0.25*l1:label=goal@place", "onnx:weighted.onnx", "onnx:weighted.onnx+ce:label=kind@kind"}) {
    const std::string flags = StrCat(
        "--model m.onnx --data d.npz --max-steps 4 --batch-size 28 --optimizer sgd --lr 0.1 --loss '", loss, "'");
    Trains(flags);
    const double whole = Summary()["final_loss"].get<double>();
    Trains(flags + " --micro-batch-size 4");
    EXPECT_NEAR(Summary()["final_loss"].get<double>(), whole, 1e-5 * whole) << loss;
  }
}

TEST_F(Losses, AModelOfTheLoss) {
  Trains("--model m.onnx --data d.npz --epochs 2 --loss onnx:plain.onnx");
  EXPECT_NEAR(EvalLoss(""), EvalLoss("--loss mse@place --label goal"), 1e-6);
  // Weights of 0 to 4 in turn: the mean is over their sum.
  const double weighted = EvalLoss("--loss onnx:weighted.onnx");
  EXPECT_NEAR(weighted, EvalLoss("--loss onnx:weighted.onnx --batch-size 9"), 1e-5 * weighted);
  const Outcome o = Run("compare --model m.onnx --data d.npz --loss onnx:weighted.onnx --gradcheck 3");
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

TEST_F(Losses, AModelOfTheLossIsATermOfASum) {
  const std::string sum = "--loss 'ce:label=kind@kind+0.25*onnx:plain.onnx+2*onnx:weighted.onnx'";
  Trains("--model m.onnx --data d.npz --epochs 2 " + sum);
  const double kind = EvalLoss("--loss ce@kind --label kind");
  const double plain = EvalLoss("--loss onnx:plain.onnx"), weighted = EvalLoss("--loss onnx:weighted.onnx");
  const double all = EvalLoss("");
  EXPECT_NEAR(all, kind + 0.25 * plain + 2 * weighted, 1e-6 * all) << "preprocess.json has the loss";
  const Outcome o = Run("compare --model m.onnx --data d.npz --gradcheck 3 " + sum);
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

TEST_F(Losses, MetricsAreToldAndRequired) {
  const std::string flags =
      "--overwrite --out r --quiet --model coin.onnx --data coin.npz --eval-split 0.25 --epochs 3 --metrics "
      "f1,auc,accuracy ";
  EXPECT_EQ(Run(flags + "--require 'auc>=0' --require 'f1<=1'").code, 0);
  for (const char* name : {"f1", "auc", "accuracy"}) EXPECT_TRUE(Summary()["eval"][name].is_number()) << name;
  EXPECT_NE(ReadAll(Path("r/metrics.jsonl")).find("\"eval_auc\":"), std::string::npos);
  EXPECT_EQ(Run(flags + "--require 'auc>1'").code, 3);
  const Outcome o = Run("eval --json --model r/model.onnx --data coin.npz --metrics f1,auc --require 'f1>1'");
  EXPECT_EQ(o.code, 3);
  EXPECT_GT(Json::parse(o.out)["auc"].get<double>(), 0);
}

TEST_F(Losses, TheAverageIsEvaluatedAndWritten) {
  const std::string flags =
      "--model m.onnx --data d.npz --eval-data d.npz --loss ce@kind --label kind --epochs 3 --lr 0.05 --ema-decay 0.8 ";
  Trains(flags);
  EXPECT_EQ(Summary()["exported"]["metric"], "ema");
  const double average = EvalLoss("");
  EXPECT_NEAR(Summary()["eval"]["loss"].get<double>(), average, 1e-6);
  Trains(flags + "--export-weights last");
  EXPECT_EQ(Summary()["exported"]["metric"], "last");
  EXPECT_NEAR(Summary()["eval"]["loss"].get<double>(), average, 1e-6) << "evaluated is the average all the same";
  EXPECT_GT(std::fabs(EvalLoss("") - average), 1e-3);
}

TEST_F(Losses, TheRateFallsOnAPlateau) {
  // Nothing gets better by 100 %: after every evaluation but the first the rate is a tenth.
  Trains(
      "--model coin.onnx --data coin.npz --eval-split 0.25 --epochs 3 --lr 0.01 --lr-scheduler "
      "plateau:patience=0,threshold=1 --log-every 1ep");
  std::vector<double> rates;
  std::istringstream lines(ReadAll(Path("r/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json["event"] == "step") rates.push_back(json["lr"].get<double>());
  }
  ASSERT_EQ(rates.size(), 3);
  EXPECT_NEAR(rates[0], 0.01, 1e-8);
  EXPECT_NEAR(rates[1], 0.001, 1e-8);
  EXPECT_NEAR(rates[2], 0.0001, 1e-8);
}

TEST_F(Losses, RatesByBatchAndLayer) {
  const Outcome o =
      Run("--overwrite --out r --model m.onnx --data d.npz --loss ce@kind --label kind --max-steps 1 --batch-size 8 "
          "--lr 0.4 "
          "--optimizer sgd --lr-scale auto --lr-scale-base 32 --layer-lr-decay 0.5");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("0.4 × 8/32 = 0.1"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("falls by 0.5 a layer"), std::string::npos) << o.err;
  EXPECT_NE(ReadAll(Path("r/config.flags")).find("--lr=0.4\n"), std::string::npos) << "the file repeats the run";
}

// x[n,4,6] → five classes a step, and labels of which the second row needs five steps.
class Alignment : public Scratch {
 protected:
  Alignment() {
    tiny::Model m{.input_shape = {-1, 4, 6}};
    m.nodes = {{"MatMul", {"x", "w"}, {"y"}}};
    m.weights = {{"w", {6, 5}, tiny::Uniform(30, 0.5f, 1)}};
    m.Save(Path("m.onnx"));
    const std::vector<int64_t> labels = {1, 2, -100, 1, 1, 1, 3, -100, -100, 2, 4, 3};
    Write("d.npz", {0, 1, 2, 3}, labels);
    Write("possible.npz", {0, 2, 3}, labels);
  }

  void Write(const std::string& file, const std::vector<int64_t>& rows, const std::vector<int64_t>& labels) const {
    const auto n = static_cast<int64_t>(rows.size());
    HostTensor x({DType::kFloat32, {n, 4, 6}}), y({DType::kInt64, {n, 3}});
    const std::vector<float> noise = tiny::Uniform(96, 1, 5);
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, noise[rows[i / 24] * 24 + i % 24]);
    for (int64_t i = 0; i < y.size(); ++i) y.SetInt(i, labels[rows[i / 3] * 3 + i % 3]);
    EXPECT_TRUE(WriteNpz(Path(file), {{"x", x}, {"y", y}}).ok());
  }

  std::map<std::string, HostTensor> Gradients(const std::string& data, const std::string& flags = "") {
    last_ = Run("grad --model m.onnx --loss ctc --input-gradients --out g.npz --data " + data + " " + flags);
    EXPECT_EQ(last_.code, 0) << last_.err;
    const auto arrays = ReadNpz(Path("g.npz"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return arrays.ok() ? std::map<std::string, HostTensor>(arrays->begin(), arrays->end())
                       : std::map<std::string, HostTensor>();
  }

  Outcome last_;
};

constexpr char kTooFewSteps[] = "sample 1: 3 labels with 2 blanks between equal ones need 5 steps, the model gives 4";

TEST_F(Alignment, SamplesWithTooFewStepsAddNothing) {
  for (const char* backend : {"cpu", "torch"}) {
    const std::string flags = StrCat("--backend ", backend);
    const auto all = Gradients("d.npz", flags);
    EXPECT_NE(last_.err.find("1 of 4 samples have labels that ctc cannot align"), std::string::npos) << last_.err;
    EXPECT_NE(last_.err.find(kTooFewSteps), std::string::npos) << last_.err;
    const auto possible = Gradients("possible.npz", flags);
    EXPECT_EQ(last_.err.find("cannot align"), std::string::npos) << last_.err;
    EXPECT_NEAR(all.at("loss").At(0) * 4, possible.at("loss").At(0) * 3, 1e-5);
    int compared = 0;
    for (const auto& [name, gradient] : all) {
      if (gradient.shape() == Shape{4, 4, 6} && name != "x") {
        for (int64_t i = 24; i < 48; ++i) EXPECT_EQ(gradient.At(i), 0) << name;
        ++compared;
      }
      if (gradient.shape() != Shape{6, 5}) continue;
      for (int64_t i = 0; i < gradient.size(); ++i)
        EXPECT_NEAR(gradient.At(i) * 4, possible.at(name).At(i) * 3, 1e-5) << name;
      ++compared;
    }
    EXPECT_EQ(compared, 2);
  }
}

TEST_F(Alignment, SkipLeavesThemOut) {
  const double want = Gradients("possible.npz").at("loss").At(0);
  EXPECT_NEAR(Gradients("d.npz", "--on-bad-sample skip").at("loss").At(0), want, 1e-6);
  EXPECT_NE(last_.err.find(StrCat("left out 1 of 4 samples (--on-bad-sample skip): d.npz: ", kTooFewSteps)),
            std::string::npos)
      << last_.err;
  const Outcome run =
      Run("--model m.onnx --data d.npz --eval-data d.npz --loss ctc --on-bad-sample skip --epochs 2 --out r");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/summary.json")))["samples"], 6);
  const Outcome kept = Run("--model m.onnx --data d.npz --loss ctc --epochs 2 --out k");
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_NE((kept.out + kept.err).find(kTooFewSteps), std::string::npos) << kept.out << kept.err;
}

// 0 is the blank, and what follows the padding is no label.
TEST_F(Alignment, LabelsThatMeanNothingAreRefused) {
  const std::pair<std::vector<int64_t>, const char*> cases[] = {
      {{1, 2, -100, 1, 0, 2}, "sample 1, column 'y': label 0 is the blank of ctc, which is no label (--ignore-index 0"},
      {{1, 2, -100, 1, -100, 2}, "sample 1, column 'y': label 2 follows --ignore-index -100, which ends a sequence"}};
  for (const auto& [labels, why] : cases) {
    Write("wrong.npz", {0, 1}, labels);
    for (const char* words : {"--epochs 1 --out w", "grad --out g.npz", "eval"}) {
      const bool train = *words == '-';
      const Outcome o = Run(StrCat(words, " --model m.onnx --loss ctc --data wrong.npz", train ? " --overwrite" : ""));
      EXPECT_EQ(o.code, 1) << o.err;
      EXPECT_NE(o.err.find(why), std::string::npos) << o.err;
    }
    const Outcome skipped = Run("grad --model m.onnx --loss ctc --data wrong.npz --on-bad-sample skip --out g.npz");
    EXPECT_EQ(skipped.code, 0) << skipped.err;
    EXPECT_NE(skipped.err.find("left out 1 of 2 samples"), std::string::npos) << skipped.err;
  }
  Write("four.npz", {0, 1}, {0, 2, -100, 1, 0, 2});
  EXPECT_EQ(Run("grad --model m.onnx --loss ctc:blank=4 --data four.npz --out g.npz").code, 0);
}

// A stream is checked when its samples are read.
TEST_F(Alignment, StreamsAreCheckedAsTheyCome) {
  const auto write = [&](const std::string& file, const char* labels) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      const nlohmann::json x = std::vector<std::vector<float>>(4, tiny::Uniform(6, 1, i));
      StrAppend(&text, "{\"x\":", x.dump(), ",\"y\":", i == 21 ? labels : "[1,2,-100]", "}\n");
    }
    WriteAll(Path(file), text);
  };
  const auto run = [&](const std::string& file, const std::string& flags) {
    return RunProcess(StrCat("--model m.onnx --data - --loss ctc --batch-size 4 --max-steps 8 --no-shuffle --overwrite "
                             "--out s ",
                             flags),
                      StrCat("sh -c 'exec \"$0\" \"$@\" < ", file, "'"));
  };
  write("good.jsonl", "[3,2,1]");
  EXPECT_EQ(run("good.jsonl", "").code, 0);
  for (const char* labels : {"[1,1,1]", "[1,0,2]"}) {
    write("bad.jsonl", labels);
    const Outcome o = run("bad.jsonl", ""), skipped = run("bad.jsonl", "--on-bad-sample skip");
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_NE(o.err.find("--on-bad-sample skip leaves such samples out"), std::string::npos) << o.err;
    EXPECT_EQ(skipped.code, 0) << skipped.err;
    EXPECT_NE(skipped.err.find("left out 1 of 40 samples"), std::string::npos) << skipped.err;
  }
}

TEST_F(Alignment, IsRefusedWhereNoSampleIsPossible) {
  Write("impossible.npz", {0, 1}, {1, 1, 1, 2, 2, 2});
  for (const char* words : {"--epochs 1 --out i", "eval"}) {
    const Outcome o = Run(StrCat(words, " --model m.onnx --loss ctc --data impossible.npz"));
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_NE(
        o.err.find("ctc cannot align the labels of any of the 2 samples: impossible.npz: sample 0: 3 labels with"),
        std::string::npos)
        << o.err;
  }
}

TEST_F(Losses, RefusesWhatDoesNotFit) {
  const std::string on = "--model m.onnx --data d.npz ";
  Refuses(on + "--loss ce@nope --label kind", "no value 'nope'");
  Refuses(on + "--loss ce:label=zzz@kind", "there is no column 'zzz'");
  Refuses(on + "--loss focal:g=1@kind --label kind", "focal has no option 'g'");
  Refuses(on + "--loss ce@kind+mse@kind --label kind", "do not fit the output 'kind'");
  Refuses(on + "--loss ce+l1 --label kind", "several outputs could be trained");
  Refuses(on + "--loss onnx:nope.onnx", "there is no such file");
  Refuses(on + "--loss onnx:coin.onnx", "no input has the name of an output of the model");
  Refuses("--model coin.onnx --data coin.npz --loss onnx:plain.onnx", "is neither an output of the model");
  Refuses(on + "--loss ce@kind --label kind --metrics mae --eval-split 0.2",
          "--metrics mae: loss cross_entropy on 'kind' has none");
  Refuses(on + "--loss ce@kind --label kind --metrics f1", "--metrics: has no effect");
  Refuses(on + "--loss ce@kind --label kind --lr-scheduler plateau", "there is no evaluation data");
  Refuses(on + "--loss ce@kind --label kind --lr-scheduler plateau --monitor f1 --eval-split 0.2",
          "--monitor f1: expected loss");
  Refuses(on + "--loss ce@kind --label kind --monitor loss", "--monitor: has no effect");
  Refuses(on + "--loss ce@kind --label kind --lr-scale-base 8", "--lr-scale-base: has no effect");
  Refuses(on + "--loss ce@kind --label kind --export-weights ema", "say --ema-decay");
  Refuses(on + "--loss ce@kind --label kind --export-weights best", "there is no evaluation data");
}

}  // namespace
}  // namespace onnxtrain
