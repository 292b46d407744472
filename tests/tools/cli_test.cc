// The program as people and scripts meet it: exit codes, what it writes and where, what it refuses.
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "tests/paths.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class Cli : public RunScratch {
 protected:
  Cli() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    tiny::Mlp(3, "Softmax").Save(Path("soft.onnx"));
    tiny::Mlp(1, "Sigmoid").Save(Path("coin.onnx"));
    EXPECT_TRUE(WriteNpz(Path("train.npz"), Blobs(96)).ok());
    EXPECT_TRUE(WriteNpz(Path("test.npz"), Blobs(30, {.seed = 8})).ok());
    std::string csv = "a,b,c,d,kind\n";
    const NamedArrays blobs = Blobs(60);
    for (int64_t i = 0; i < 60; ++i) {
      for (int64_t j = 0; j < 4; ++j) StrAppend(&csv, blobs[0].second.At(i * 4 + j), ",");
      csv += std::string(i % 3 == 0 ? "\"red, dark\"" : i % 3 == 1 ? "green" : "blue") + "\n";
    }
    WriteAll(Path("t.csv"), csv);
  }

  // Exit 1, nothing on stdout, one line on stderr that says `part`, no folder left behind.
  void Refuses(const std::string& line, const std::string& part) {
    const Outcome o = Run(line + " --quiet");
    EXPECT_EQ(o.code, 1) << line << "\n" << o.err;
    EXPECT_EQ(o.out, "") << line;
    EXPECT_TRUE(o.err.starts_with("onnxtrain: error: ")) << line << "\n" << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << line << "\n" << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << line << "\n" << o.err;
    EXPECT_FALSE(Exists("runs/x")) << line;
  }
};

TEST_F(Cli, HelpAndVersion) {
  const char* const kCommands[] = {"train", "eval", "predict", "grad", "inspect", "compare", "export", "bench", "plan"};
  for (const char* c : kCommands) {
    const Outcome o = Run(StrCat(c, " --help"));
    EXPECT_EQ(o.code, 0) << c;
    EXPECT_NE(o.out.find("--model FILE"), std::string::npos) << c;
    const bool updates = std::set<std::string>{"train", "bench", "plan", "export"}.contains(c);
    EXPECT_EQ(o.out.find("--optimizer") != std::string::npos, updates) << c;
    EXPECT_EQ(o.err, "") << c;
  }
  const Outcome all = Run("--help");
  for (const char* c : kCommands) EXPECT_NE(all.out.find(StrCat("\n  ", c, " ")), std::string::npos) << c;
  EXPECT_NE(all.out.find("(default adamw)"), std::string::npos);
  const Outcome version = Run("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("onnxtrain ")) << version.out;
}

TEST_F(Cli, TrainsAndWritesARun) {
  const Outcome o = Run("--model m.onnx --data train.npz --eval-data test.npz --epochs 8 --lr 0.02 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* file : {"model.onnx", "summary.json", "metrics.jsonl", "preprocess.json", "config.flags"})
    EXPECT_TRUE(Exists(StrCat("r/", file))) << file;
  const Json s = Summary("r");
  for (const char* key : {"version",
                          "stop_reason",
                          "resumable",
                          "steps",
                          "epochs",
                          "samples",
                          "seconds",
                          "samples_per_second",
                          "final_loss",
                          "eval_before",
                          "eval",
                          "exported",
                          "backend",
                          "device",
                          "cpu",
                          "precision",
                          "global_batch",
                          "micro_batch",
                          "accumulation",
                          "world",
                          "planned_peak_bytes",
                          "measured_peak_bytes",
                          "time_split",
                          "skipped_steps",
                          "oom_retries",
                          "trainable_parameters",
                          "data",
                          "model_sha256",
                          "seed"}) {
    EXPECT_TRUE(s.contains(key)) << key;
  }
  EXPECT_EQ(s["steps"], 24);
  EXPECT_EQ(s["samples"], 96 * 8);
  EXPECT_EQ(s["stop_reason"], "epochs");
  EXPECT_EQ(s["exported"]["step"], 24);
  EXPECT_EQ(s["trainable_parameters"], 4 * 16 + 16 + 16 * 3 + 3);
  EXPECT_LT(s["eval_before"]["accuracy"], 0.9);
  EXPECT_GT(s["eval"]["accuracy"], 0.95);
  EXPECT_EQ(s["eval"]["samples"], 30);
  EXPECT_NE(o.out.find("24 updates"), std::string::npos) << o.out;
  // Every line of metrics.jsonl is an object; the evaluation before the first step comes first.
  std::istringstream lines(ReadAll(Path("r/metrics.jsonl")));
  std::string line;
  int64_t evals = 0, last = -1;
  while (std::getline(lines, line)) {
    const Json event = Json::parse(line);
    EXPECT_GE(event["step"], last);
    last = event["step"];
    evals += event["event"] == "eval";
    EXPECT_EQ(event.contains("eval_loss"), event["event"] == "eval");
  }
  EXPECT_EQ(last, 24);
  EXPECT_EQ(evals, 9);
}

// The lines before the first progress line, and the progress lines of steps.
struct PageLines {
  int start = 0, steps = 0;
};
PageLines CountPageLines(const std::string& log) {
  PageLines count;
  std::istringstream lines(log);
  bool began = false;
  for (std::string line; std::getline(lines, line);) {
    began = began || line.find("  epoch ") != std::string::npos;
    count.start += !began;
    count.steps += line.find("|g|") != std::string::npos;
  }
  return count;
}

TEST_F(Cli, ShortRunsPrintShortPages) {
  const std::string line = "--model m.onnx --data train.npz --eval-data test.npz --epochs 40 --lr 0.02 --batch-size 8";
  const Outcome brief = Run(line + " --out brief");
  const PageLines short_page = CountPageLines(brief.err);
  EXPECT_LE(short_page.start, 15) << brief.err;
  EXPECT_LE(short_page.steps, 20) << brief.err;
  EXPECT_GE(short_page.steps, 10) << brief.err;
  EXPECT_EQ(brief.err.find("--betas 0.9,0.999"), std::string::npos) << brief.err;

  const Outcome verbose = Run(line + " --verbose --out verbose");
  const PageLines long_page = CountPageLines(verbose.err);
  EXPECT_NE(verbose.err.find("--betas 0.9,0.999"), std::string::npos) << verbose.err;  // every default with its flag
  EXPECT_GT(long_page.steps, 20) << verbose.err;

  EXPECT_EQ(CountPageLines(Run(line + " --log-every 4 --out asked").err).steps, 120);
  EXPECT_EQ(ReadAll(Path("brief/config.flags")).find("verbose"), std::string::npos);
}

TEST_F(Cli, TheTrainedModelIsWhatWasEvaluated) {
  ASSERT_EQ(Run("--model soft.onnx --data train.npz --eval-data test.npz --epochs 3 --out r --quiet").code, 0);
  const Outcome o = Run("eval --model r/model.onnx --data test.npz --json --quiet");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json eval = Json::parse(o.out), s = Summary("r");
  EXPECT_NEAR(eval["loss"], s["eval"]["loss"], 1e-5);
  EXPECT_EQ(eval["accuracy"], s["eval"]["accuracy"]);
  EXPECT_EQ(eval["samples"], 30);
  EXPECT_EQ(Run("eval --model r/model.onnx --data test.npz --require 'accuracy>=0' --quiet").code, 0);
  EXPECT_EQ(Run("eval --model r/model.onnx --data test.npz --require 'loss<0' --quiet").code, 3);
}

TEST_F(Cli, SameSeedSameBytes) {
  for (const char* out : {"a", "b"})
    ASSERT_EQ(
        Run(StrCat("--model m.onnx --data train.npz --epochs 2 --backend cpu --threads 1 --quiet --out ", out)).code,
        0);
  ASSERT_EQ(
      Run("--model m.onnx --data train.npz --epochs 2 --backend cpu --threads 1 --quiet --num-workers 3 --out c").code,
      0);
  ASSERT_EQ(Run("--model m.onnx --data train.npz --epochs 2 --backend cpu --threads 1 --quiet --seed 43 --out d").code,
            0);
  EXPECT_EQ(ReadAll(Path("a/model.onnx")), ReadAll(Path("b/model.onnx")));
  EXPECT_EQ(ReadAll(Path("a/model.onnx")), ReadAll(Path("c/model.onnx")));
  EXPECT_NE(ReadAll(Path("a/model.onnx")), ReadAll(Path("d/model.onnx")));
}

TEST_F(Cli, ConfigFlagsRepeatTheRun) {
  ASSERT_EQ(Run("--model m.onnx --data train.npz --batch-size 16 --epochs 2 --lr 0.003 --freeze 'b*' --freeze w1 "
                "--no-shuffle --optimizer sgd --momentum 0.9 --out r --quiet")
                .code,
            0);
  const std::string config = ReadAll(Path("r/config.flags"));
  for (const char* line : {"--lr=0.003\n", "--batch-size=16\n", "--micro-batch-size=16\n", "--freeze=b*\n--freeze=w1\n",
                           "--shuffle=false\n", "--momentum=0.9\n", "--seed=42\n"}) {
    EXPECT_NE(config.find(line), std::string::npos) << line << config;
  }
  const Json saved = Summary("r")["config"];
  EXPECT_EQ(saved["batch_size"], 16);
  EXPECT_EQ(saved["lr"], (std::vector<std::string>{"0.003"}));
  EXPECT_EQ(saved["freeze"], (std::vector<std::string>{"b*", "w1"}));
  EXPECT_EQ(Run("--config r/config.yaml --out r3 --quiet").code, 0);
  EXPECT_EQ(ReadAll(Path("r3/model.onnx")), ReadAll(Path("r/model.onnx")));
  const Outcome again = Run("--flagfile r/config.flags --quiet");
  EXPECT_EQ(again.code, 1) << again.err;  // the same --out
  ASSERT_EQ(Run("--flagfile r/config.flags --out r2 --quiet").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), ReadAll(Path("r2/model.onnx")));
}

TEST_F(Cli, OutputFolderRules) {
  ASSERT_EQ(Run("--model m.onnx --data train.npz --epochs 1 --out r --quiet").code, 0);
  WriteAll(Path("r/mine.txt"), "keep");
  const std::string before = ReadAll(Path("r/model.onnx"));
  Refuses("--model m.onnx --data train.npz --out r", "holds a run already");
  Refuses("--model r/model.onnx --data train.npz --out r --overwrite", "would overwrite an input");
  Refuses("--model m.onnx --data train.npz --out m.onnx", "--out m.onnx: ");
  std::filesystem::remove_all(Path("r/checkpoints"));
  Refuses("--model m.onnx --data train.npz --out r --resume auto", "r: holds a trained model (model.onnx), but no");
  // A mistake elsewhere leaves the old run alone, even with --overwrite.
  Refuses("--model m.onnx --data none.npz --out r --overwrite", "none.npz");
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), before);
  ASSERT_EQ(Run("--model m.onnx --data train.npz --epochs 2 --out r --overwrite --quiet").code, 0);
  EXPECT_NE(ReadAll(Path("r/model.onnx")), before);
  EXPECT_EQ(ReadAll(Path("r/mine.txt")), "keep");
  ASSERT_EQ(Run("--model m.onnx --data train.npz --epochs 1 --out deep/er/r --quiet").code, 0);
  // A folder that holds something else is no run.
  std::filesystem::create_directory(Path("plain"));
  WriteAll(Path("plain/mine.txt"), "keep");
  EXPECT_EQ(Run("--model m.onnx --data train.npz --epochs 1 --out plain --quiet").code, 0);
  // The default lies under runs/ and never collides.
  EXPECT_EQ(Run("--model m.onnx --data train.npz --epochs 1 --quiet").code, 0);
  EXPECT_EQ(Run("--model m.onnx --data train.npz --epochs 1 --quiet").code, 0);
  const auto begin = std::filesystem::directory_iterator(Path("runs"));
  EXPECT_EQ(std::distance(begin, std::filesystem::directory_iterator()), 2);
}

TEST_F(Cli, TwoProcessesWithTheSameOut) {
  std::filesystem::create_directory(Path("r"));
  const int fd = open(Path("r").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  Refuses("--model m.onnx --data train.npz --out r", "another process is writing a run there");
  Refuses("--model m.onnx --data train.npz --out r --overwrite", "another process is writing a run there");
  close(fd);
  EXPECT_EQ(Run("--model m.onnx --data train.npz --epochs 1 --out r --quiet").code, 0);
}

TEST_F(Cli, RequireAndFailure) {
  EXPECT_EQ(Run("--model m.onnx --data train.npz --eval-data test.npz --require 'accuracy>=0' --require "
                "'final_loss<100' --epochs 1 --out a --quiet")
                .code,
            0);
  const Outcome unmet =
      Run("--model m.onnx --data train.npz --eval-data test.npz --require 'accuracy>=1.5' --epochs 1 --out b --quiet");
  EXPECT_EQ(unmet.code, 3);
  EXPECT_NE(unmet.err.find("required: accuracy is "), std::string::npos) << unmet.err;
  EXPECT_TRUE(Exists("b/model.onnx"));
  const Outcome wild = Run("--model m.onnx --data train.npz --lr 1e30 --epochs 20 --out c --quiet");
  EXPECT_EQ(wild.code, 2) << wild.err;
  EXPECT_FALSE(Exists("c/model.onnx"));
  EXPECT_EQ(Summary("c")["final_loss"], nullptr);
  NamedArrays broken = Blobs(96);
  for (int64_t i = 4; i < 8; ++i) broken[0].second.Set(i, 3e38);  // finite, the square is not
  ASSERT_TRUE(WriteNpz(Path("huge.npz"), broken).ok());
  tiny::SquaredMlp(3).Save(Path("squared.onnx"));
  const Outcome some = Run("--model squared.onnx --data huge.npz --epochs 2 --out d --quiet");
  EXPECT_EQ(some.code, 0) << some.err;  // the updates that saw it are skipped and counted
  EXPECT_EQ(Summary("d")["skipped_steps"], 2);
}

TEST_F(Cli, SignalsEndTheRun) {
  for (const char* signal : {"TERM", "INT", "HUP"}) {
    const std::string out = StrCat("r", signal);
    const Outcome o =
        RunProcess(StrCat("--model m.onnx --data train.npz --epochs 100000000 --log-every 1000 --out ", out),
                   StrCat("timeout --preserve-status -k 10 -s ", signal, " 1"));
    EXPECT_EQ(o.code, 75) << signal << o.err;
    EXPECT_FALSE(Exists(out + "/model.onnx"));
    EXPECT_TRUE(Exists(out + "/model.unfinished.onnx"));
    EXPECT_EQ(Summary(out)["stop_reason"], "signal");
    EXPECT_GT(Summary(out)["steps"], 0);
  }
}

TEST_F(Cli, PresetsTrain) {
  int presets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RepoPath("presets"))) {
    const bool yaml = entry.path().extension() == ".yaml";
    if (!yaml && entry.path().extension() != ".flags") continue;
    const std::string out = "r" + entry.path().filename().string();
    const Outcome o =
        Run(StrCat(yaml ? "--config " : "--flagfile ", entry.path().string(),
                   " --model m.onnx --data train.npz --eval-split 0.2", " --max-steps 6 --quiet --out ", out));
    EXPECT_EQ(o.code, 0) << entry.path() << o.err;
    EXPECT_TRUE(Exists(out + "/model.onnx")) << entry.path();
    ++presets;
  }
  EXPECT_GE(presets, 10);
}

// The recipes name models and data that are not here.
TEST_F(Cli, RecipesAreValid) {
  int recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RepoPath("examples/recipes"))) {
    ExpectRefused(Run(StrCat("--config ", entry.path().string(), " --model none.onnx")), "none.onnx: ");
    ++recipes;
  }
  EXPECT_GE(recipes, 10);
}

TEST_F(Cli, PlansInsteadOfADryRun) {
  const Outcome plan = Run("plan --model m.onnx --data train.npz --batch-size 8");
  const Outcome dry = Run("--model m.onnx --data train.npz --batch-size 8 --dry-run --out r");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_EQ(dry.out, plan.out);
  EXPECT_FALSE(Exists("r"));
}

TEST_F(Cli, AnIgnoredHangupStaysIgnored) {
  const Outcome o =
      RunProcess("--model m.onnx --data train.npz --epochs 100000000 --max-time 2s --log-every 1000 --quiet --out r",
                 "timeout --preserve-status -s HUP 1 nohup");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["stop_reason"], "max_time");
}

TEST_F(Cli, ATimeLimitIsAnEndLikeOthers) {
  const Outcome o =
      Run("--model m.onnx --data train.npz --epochs 100000000 --log-every 1000 --max-time 1s --out r --quiet");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["stop_reason"], "max_time");
  EXPECT_TRUE(Exists("r/model.onnx"));
}

// Weights with the tails that training gives.
tiny::Model Trained() {
  tiny::Model m = tiny::Mlp(3);
  m.weights[0] = {"w1", {4, 64}, tiny::Uniform(256, 1, 1)};
  m.weights[1] = {"b1", {64}, std::vector<float>(64, 0)};
  m.weights[2] = {"w2", {64, 3}, tiny::Uniform(192, 1, 2)};
  for (float& v : m.weights[0].values) v = v * v * v * v * v;
  return m;
}

TEST_F(Cli, APreTrainedModelAtChanceIsSuspicious) {
  Trained().Save(Path("t.onnx"));
  const std::string warning = "starts at 0.0% accuracy, which is chance: the preprocessing is probably wrong";
  // Labels that are always wrong: what the model predicts, plus one.
  NamedArrays data = Blobs(60);
  ASSERT_TRUE(WriteNpz(Path("d.npz"), data).ok());
  ASSERT_EQ(Run("predict --model t.onnx --data d.npz --out p.csv --quiet").code, 0);
  std::istringstream lines(ReadAll(Path("p.csv")));
  std::string line;
  std::getline(lines, line);
  for (int64_t i = 0; std::getline(lines, line); ++i)
    data[1].second.SetInt(i, (line[line.find(',') + 1] - '0' + 1) % 3);
  ASSERT_TRUE(WriteNpz(Path("wrong.npz"), data).ok());
  const Outcome wrong = Run("--model t.onnx --data wrong.npz --eval-data wrong.npz --max-steps 1 --out a");
  EXPECT_EQ(wrong.code, 0);
  EXPECT_NE(wrong.err.find(warning), std::string::npos) << wrong.err;
  EXPECT_EQ(Summary("a")["warnings"].size(), 1u);
  EXPECT_NE(wrong.err.find("for a pre-trained model"), std::string::npos) << wrong.err;
  EXPECT_EQ(Summary("a")["lr"], 1e-4);
  // Trained to be wrong, it ends worse.
  for (int64_t i = 0; i < 60; ++i) data[1].second.SetInt(i, (data[1].second.IntAt(i) + 2) % 3);
  ASSERT_TRUE(WriteNpz(Path("right.npz"), data).ok());
  const Outcome worse =
      Run("--model t.onnx --data wrong.npz --eval-data right.npz --epochs 20 --lr 0.1 --out b --quiet");
  EXPECT_EQ(worse.code, 0);
  EXPECT_NE(worse.err.find("ends worse than it began"), std::string::npos) << worse.err;
  EXPECT_EQ(worse.err.find("chance"), std::string::npos) << worse.err;
  // A new model at chance is no surprise.
  EXPECT_EQ(Run("--model m.onnx --data wrong.npz --eval-data wrong.npz --epochs 1 --out c --quiet").err, "");
}

TEST_F(Cli, WithoutData) {
  const Outcome o = Run("--model soft.onnx --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("NO --data"), std::string::npos);
  EXPECT_TRUE(Exists("r/model.synthetic.onnx"));
  EXPECT_FALSE(Exists("r/model.onnx"));
  EXPECT_EQ(Summary("r")["steps"], 20);
  EXPECT_EQ(Summary("r")["data"], "synthetic");
  EXPECT_EQ(Run("--model coin.onnx --max-steps 3 --out r2 --quiet").code, 0);
  EXPECT_EQ(Summary("r2")["steps"], 3);
  for (const char* flag : {"--label y", "--input x=y", "--header yes", "--normalize raw", "--eval-data test.npz",
                           "--eval-split 0.1", "--epochs 2"}) {
    Refuses(StrCat("--model m.onnx ", flag), "there is no --data");
  }
}

TEST_F(Cli, RefusesWhatHasNoEffect) {
  const std::string base = "--model m.onnx --data train.npz --out runs/x ";
  for (const char* flag : {"--momentum 0.9", "--betas 0.9,0.99 --optimizer sgd", "--eps 1e-6 --optimizer sgd",
                           "--no-decay none", "--min-lr 1e-5", "--eval-every 5", "--normalize raw", "--header yes",
                           "--dropout 0.1", "--batch-norm frozen", "--eval-data test.npz --eval-split 0.1",
                           "--num-workers 0 --prefetch-factor 4", "--loss mse --label-smoothing 0.1"}) {
    const Outcome o = Run(base + flag);
    EXPECT_EQ(o.code, 1) << flag;
    EXPECT_FALSE(Exists("runs/x")) << flag;
  }
  Refuses(base + "--momentum 0.9", "--momentum: has no effect: only --optimizer sgd, rmsprop and lars have momentum");
  Refuses("eval --model m.onnx --data train.npz --normalize unit", "--normalize: has no effect");
  Refuses("eval --model coin.onnx --data train.npz --label-smoothing 0.1 --loss mse", "");
}

TEST_F(Cli, ArraysInFilesOfTheirOwnAreColumnsOfAFolder) {
  std::filesystem::create_directory(Path("d"));
  for (const char* file : {"d/x.npy", "d/y.npy"}) WriteAll(Path(file), "");
  Refuses("--model m.onnx --input x=d/x.npy --label d/y.npy",
          "--input x=d/x.npy: names a file, but is to name a column: --data d takes the .npy files of a folder");
  Refuses("--model m.onnx --data d/x.npy --label d/y.npy", "--label d/y.npy: names a file");
}

TEST_F(Cli, LabelsOfOneNameAreRefused) {
  WriteAll(Path("one.csv"), "a,b,c,d,kind\n1,2,3,4,x\n2,3,4,5,x\n");
  Refuses("--model m.onnx --data one.csv", "--data: all labels are 'x': there is nothing to tell apart");
}

TEST_F(Cli, LabelsOfOneNumberAreTold) {
  WriteAll(Path("one.csv"), "a,b,c,d,y\n1,2,3,4,1\n2,3,4,5,1\n");
  const Outcome run = Run("--model m.onnx --data one.csv --max-steps 1 --out one");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("all labels are 1: there is nothing to tell apart"), std::string::npos) << run.err;
}

TEST_F(Cli, NamesAreNoNumbers) {
  tiny::Mlp(1).Save(Path("one.onnx"));
  WriteAll(Path("dates.csv"), "a,b,c,d,day\n1,2,3,4,mo\n2,3,4,5,tu\n2,3,4,5,we\n");
  Refuses("--model one.onnx --data dates.csv",
          "--data: the label has 3 names ('mo', 'tu', …), and loss mse fits numbers: --label names another column");
}

// Also where one column is left.
TEST_F(Cli, MissingValuesAreNamedWhereTheRestDoesNotFit) {
  WriteAll(Path("gap.csv"), "a,b,c,d,kind\n1,2,3,4,x\n,,,5,y\n");
  Refuses("--model m.onnx --data gap.csv", "(left out: gap.csv: row 3, column 'a': missing value");
}

TEST_F(Cli, AFolderWithFilesForTrainingAndEvaluationIsData) {
  const Outcome o = Run("--model m.onnx --data . --max-steps 2 --out runs/folder");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("train.npz"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("test.npz"), std::string::npos) << o.err;
}

TEST_F(Cli, RefusesBadUsage) {
  const std::string base = "--model m.onnx --data train.npz --out runs/x ";
  const std::pair<const char*, const char*> rows[] = {
      {"--epochs 0", "--epochs: expected a number of at least 1"},
      {"--epochs 1.5", "--epochs: expected a whole number, got '1.5'"},
      {"--epochs many", "--epochs: expected a whole number"},
      {"--batch-size -4", "--batch-size"},
      {"--batch-size 99999999999999999999", "--batch-size"},
      {"--batch-size 64 --micro-batch-size 16 --gradient-accumulation-steps 2", "--batch-size 64 is not"},
      {"--batch-size 64 --micro-batch-size 24", "does not divide"},
      {"--lr fast", "expected auto, a number above 0 or GLOB=X"},
      {"--lr -1", "--lr"},
      {"--lr nan", "--lr"},
      {"--lr inf", "--lr"},
      {"--betas 0.9", "--betas"},
      {"--betas 0.9,1.0", "--betas"},
      {"--eps nan", "--eps"},
      {"--weight-decay -1", "--weight-decay"},
      {"--optimizer adma", "did you mean adam?"},
      {"--lr-scheduler cosin", "there are constant, linear, cosine"},
      {"--lr-scheduler step:gamma=2", "gamma: expected 0 to 1"},
      {"--optimizer lion --eps 1", "has no effect"},
      {"--optimizer sgd --momentum 0.9 --nesterov --dampening 0.1", "--nesterov"},
      {"--loss crossentropy", "--loss crossentropy: unknown"},
      {"--loss output:nope", "--loss output:nope"},
      {"--logits nope", "nope"},
      {"--train 'zz*'", "--train zz*: matches no weight"},
      {"--freeze 'zz*'", "--freeze zz*: matches no weight"},
      {"--freeze '*'", "nothing to train"},
      {"--label nope", "there is no column 'nope'"},
      {"--label x", "column 'label': a sample is [], which does not fit [4]"},
      {"--input x=nope", "there is no column 'nope'"},
      {"--input nope=x", "the model has no such input"},
      {"--input x", "--input: expected MODEL_INPUT=COLUMN"},
      {"--input x=x --input x=label", "--input x: given twice"},
      {"--dim nope=3", "--dim nope=3: no input has a dimension of that name; there are 'batch'"},
      {"--dim batch", "--dim: expected NAME=N"},
      {"--eval-split 1.5", "--eval-split: expected a fraction"},
      {"--eval-split 0", "--eval-split: expected a fraction"},
      {"--eval-data none.npz", "--eval-data: none.npz"},
      {"--max-time soon", "--max-time: expected a time"},
      {"--log-every never", "--log-every: expected an interval"},
      {"--eval-split 0.2 --eval-every 0", "--eval-every: expected an interval"},
      {"--require accuracy", "--require: expected METRIC>=X"},
      {"--require 'accuracy>=0.5'", "there is no evaluation data"},
      {"--num-workers lots", "--num-workers: expected auto"},
      {"--threads 0", "--threads"},
      {"--backend tensorflow", "--backend: expected one of"},
      {"--device gpu", "--device: expected auto, cpu or cuda:N"},
      {"--device cuda:0 --backend cpu", "runs on the CPU only"},
      {"--drop-last --batch-size 1000", "make no batch"},
      {"--header maybe", "--header: expected one of auto|yes|no"},
      {"--seed -1", "--seed"},
      {"--min-lr 1 --lr-scheduler linear", "--min-lr 1 is above"},
      {"--no-such-flag", "--no-such-flag: unknown flag"},
      {"extra", "'extra': a word that belongs to no flag"},
      {"--model other.onnx", "--model: given twice"},
  };
  for (const auto& [flags, part] : rows) Refuses(base + flags, part);
  Refuses("--data train.npz", "--model: missing");
  Refuses("--model none.onnx", "none.onnx");
  Refuses("--model train.npz", "train.npz");
  Refuses("--model m.onnx --data ''", "--data: the value is empty");
  Refuses("--model m.onnx --data m.onnx", "not a known kind of data");
  std::filesystem::create_directory(Path("empty"));
  Refuses("--model m.onnx --data empty", "--data");
  Refuses("eval --model m.onnx", "--data: missing");
  Refuses("predict --model m.onnx --data train.npz", "--out: missing");
  Refuses("predict --model m.onnx --data train.npz --out train.npz", "would overwrite an input");
  Refuses("predict --model m.onnx --data train.npz --out ./m.onnx", "would overwrite an input");
  WriteAll(Path("w.bin"), std::string(16, '\0'));
  tiny::Message location, tensor, node, graph, model;
  location.Bytes(1, "location").Bytes(2, "w.bin");
  tensor.Int(1, 4).Int(2, 1).Bytes(8, "w").Sub(13, location).Int(14, 1);
  node.Bytes(1, "w").Bytes(2, "y").Bytes(4, "Relu");
  graph.Sub(1, node).Bytes(2, "g").Sub(5, tensor).Sub(12, tiny::Message().Bytes(1, "y"));
  model.Int(1, 8).Sub(7, graph).Sub(8, tiny::Message().Bytes(1, "").Int(2, 17));
  WriteAll(Path("external.onnx"), model.text());
  for (const char* line : {"grad --model external.onnx --out w.bin", "export --model external.onnx --out ./w.bin",
                           "export --model m.onnx --weights external.onnx --out w.bin"})
    ExpectRefused(Run(line), "w.bin: would overwrite an input");
  EXPECT_EQ(ReadAll(Path("w.bin")).size(), 16u);
}

TEST_F(Cli, LabelsOutOfRangeNameTheRow) {
  NamedArrays bad = Blobs(20);
  bad[1].second.SetInt(13, 3);
  ASSERT_TRUE(WriteNpz(Path("bad.npz"), bad).ok());
  Refuses("--model m.onnx --data bad.npz --out runs/x",
          "sample 13, column 'label': label 3 is outside of the 3 classes");
  Refuses("--model m.onnx --data train.npz --eval-data bad.npz --out runs/x", "bad.npz: sample 13");
  bad[1].second.SetInt(13, -100);  // the label that does not count
  ASSERT_TRUE(WriteNpz(Path("ignored.npz"), bad).ok());
  EXPECT_EQ(Run("--model m.onnx --data ignored.npz --out r --quiet").code, 0);
}

TEST_F(Cli, TablesOfText) {
  const Outcome o = Run("--model soft.onnx --data t.csv --eval-split 0.25 --epochs 20 --lr 0.02 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("3 classes: blue, green, red, dark"), std::string::npos) << o.err;
  const int64_t held_out = Summary("r")["eval"]["samples"], trained = Summary("r")["samples"];
  EXPECT_EQ(held_out + trained / 20, 60) << "each sample is on one side";
  EXPECT_NEAR(static_cast<double>(held_out), 15, 8);
  const Json p = Json::parse(ReadAll(Path("r/preprocess.json")));
  EXPECT_EQ(p["classes"], (std::vector<std::string>{"blue", "green", "red, dark"}));
  EXPECT_EQ(p["inputs"]["x"]["columns"], (std::vector<std::string>{"a", "b", "c", "d"}));
  // New data without labels, columns in another order.
  WriteAll(Path("new.csv"), "d,c,b,a\n0,0,0,2\n0,2,0,0\n0,0,2,0\n");
  ASSERT_EQ(Run("predict --model r/model.onnx --data new.csv --out preds.csv --quiet").code, 0);
  std::istringstream lines(ReadAll(Path("preds.csv")));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "sample,prediction,probability,p_blue,p_green,\"p_red, dark\"");
  for (const char* want : {"0,\"red, dark\",", "1,blue,", "2,green,"}) {
    std::getline(lines, line);
    EXPECT_TRUE(line.starts_with(want)) << line;
  }
  EXPECT_FALSE(std::getline(lines, line));
  // Labels are not read: neither missing ones, nor ones of other names, nor several columns that could be it.
  for (const char* labels :
       {"kind\n0,0,0,2,\n0,2,0,0,purple\n0,0,2,0,red\n", "label,y\n0,0,0,2,1,\n0,2,0,0,,2\n0,0,2,0,,\n"}) {
    WriteAll(Path("labelled.csv"), StrCat("d,c,b,a,", labels));
    const Outcome again = Run("predict --model r/model.onnx --data labelled.csv --out again.csv --quiet");
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(ReadAll(Path("again.csv")), ReadAll(Path("preds.csv")));
    const Outcome alone = Run("predict --model m.onnx --data labelled.csv --input x=a,b,c,d --out alone.csv --quiet");
    EXPECT_EQ(alone.code, 0) << alone.err;
  }
}

TEST_F(Cli, AccumulationIsTheSameUpdate) {
  for (const char* backend : {"cpu", "torch"}) {
    const std::string base =
        StrCat("grad --model soft.onnx --data train.npz --batch-size 24 --quiet --backend ", backend);
    ASSERT_EQ(Run(base + " --out whole.npz").code, 0);
    ASSERT_EQ(Run(base + " --micro-batch-size 7 --out parts.npz").code, 0);
    const auto whole = ReadNpz(Path("whole.npz")), parts = ReadNpz(Path("parts.npz"));
    ASSERT_TRUE(whole.ok() && parts.ok());
    ASSERT_EQ(whole->size(), 6u);  // loss, y, four gradients
    for (size_t i = 0; i < whole->size(); ++i) {
      const auto& [name, a] = (*whole)[i];
      const HostTensor& b = (*parts)[i].second;
      ASSERT_EQ(name, (*parts)[i].first);
      for (int64_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a.At(k), b.At(k), 1e-6) << backend << " " << name;
    }
  }
}

TEST_F(Cli, CompareAgreesAndNotices) {
  ASSERT_EQ(Run("grad --model m.onnx --data train.npz --out g.npz --quiet").code, 0);
  const Outcome o = Run("compare --model m.onnx --data train.npz --reference g.npz --gradcheck 4 --json --quiet");
  ASSERT_EQ(o.code, 0) << o.err << o.out;
  const Json json = Json::parse(o.out);
  EXPECT_EQ(json["comparisons"].size(), 4u);  // values, results, each backend against the reference
  EXPECT_EQ(json["gradcheck"]["parameters"].size(), 4u);
  EXPECT_TRUE(json["agrees"]);
  std::set<std::string> names;
  for (const Json& v : json["comparisons"][0]["values"]) names.insert(v["name"]);
  for (const char* name : {"h0", "h1", "h", "o", "y", "grad:w1", "grad:b2"}) EXPECT_TRUE(names.contains(name)) << name;
  NamedArrays wrong = *ReadNpz(Path("g.npz"));
  for (auto& [name, value] : wrong) {
    if (name == "grad:w1") value.Set(3, value.At(3) + 0.1);
  }
  ASSERT_TRUE(WriteNpz(Path("wrong.npz"), wrong).ok());
  const Outcome notices = Run("compare --model m.onnx --data train.npz --reference wrong.npz --quiet");
  EXPECT_EQ(notices.code, 2);
  EXPECT_NE(notices.out.find("DISAGREE"), std::string::npos);
  EXPECT_NE(notices.out.find("grad:w1"), std::string::npos);
}

TEST_F(Cli, ResultsHaveNamesOfTheirOwn) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.push_back({"Identity", {"y"}, {"grad:w1"}});
  m.nodes.push_back({"Neg", {"y"}, {"loss"}});
  m.nodes.push_back({"Abs", {"y"}, {"output:loss"}});
  m.outputs = {"y", "loss", "output:loss", "grad:w1"};
  m.Save(Path("named.onnx"));
  const std::string flags = " --model named.onnx --data train.npz --logits y --quiet ";
  ASSERT_EQ(Run("grad --out g.npz" + flags).code, 0) << Run("grad --out h.npz" + flags).err;
  const NamedArrays written = *ReadNpz(Path("g.npz"));
  const std::map<std::string, HostTensor> results(written.begin(), written.end());
  EXPECT_EQ(results.at("loss").shape(), Shape{});
  EXPECT_EQ(results.at("grad:w1").shape(), (Shape{4, 16}));
  EXPECT_EQ(results.size(), 1u + 4u + 4u);
  const HostTensor& y = results.at("y");
  EXPECT_TRUE(results.at("output:grad:w1").SameBytes(y));
  EXPECT_EQ(results.at("output:output:loss").At(5), -y.At(5));
  EXPECT_EQ(results.at("output:loss").At(5), std::fabs(y.At(5)));
  const Outcome o = Run("compare --reference g.npz --json" + flags);
  ASSERT_EQ(o.code, 0) << o.err << o.out;
  const Json values = Json::parse(o.out)["comparisons"].back()["values"];
  EXPECT_EQ(values.size(), results.size());
  m.weights[0].name = m.nodes[0].inputs[1] = "$grad:w2";
  m.Save(Path("named.onnx"));
  Refuses("--data train.npz --logits y --max-steps 1 --model named.onnx", "named.onnx: '$grad:w2': names of");
}

TEST_F(Cli, AWeightMayBeAnOutput) {
  tiny::Model m = tiny::Mlp(3);
  m.outputs = {"y", "w2"};
  m.Save(Path("shown.onnx"));
  const HostTensor w2 = *(*OnnxModel::Load(Path("shown.onnx")))->Initializer("w2");
  for (const char* backend : {"cpu", "torch"}) {
    const std::string flags = StrCat(" --model shown.onnx --data train.npz --logits y --quiet --backend ", backend);
    for (const char* micro : {"", " --micro-batch-size 16"}) {  // as many as w2 has rows
      ASSERT_EQ(Run(StrCat("grad --batch-size 32 --out g.npz", flags, micro)).code, 0);
      const NamedArrays written = *ReadNpz(Path("g.npz"));
      const std::map<std::string, HostTensor> results(written.begin(), written.end());
      ASSERT_TRUE(results.contains("w2")) << backend;
      EXPECT_TRUE(results.at("w2").SameBytes(w2)) << backend;
      EXPECT_EQ(results.at("y").shape(), (Shape{32, 3}));
      EXPECT_TRUE(results.contains("grad:w2"));
    }
    ASSERT_EQ(Run(StrCat("train --epochs 2 --overwrite --out shown", flags)).code, 0);
    EXPECT_FALSE((*OnnxModel::Load(Path("shown/model.onnx")))->Initializer("w2")->SameBytes(w2));
  }
  EXPECT_EQ(Run("compare --model shown.onnx --data train.npz --logits y --quiet").code, 0);
}

TEST_F(Cli, ExportTakesWeightsByName) {
  ASSERT_TRUE(
      WriteNpz(Path("w.npz"), {{"b2", HostTensor::FromDoubles({DType::kFloat32, {3}}, std::vector<double>{1, 2, 3})}})
          .ok());
  ASSERT_EQ(Run("export --model m.onnx --weights w.npz --out y.onnx").code, 0);
  const auto model = OnnxModel::Load(Path("y.onnx")), old = OnnxModel::Load(Path("m.onnx"));
  ASSERT_TRUE(model.ok() && old.ok());
  EXPECT_EQ((*model)->Initializer("b2")->ToDoubles(), (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE((*model)->Initializer("w1")->SameBytes(*(*old)->Initializer("w1")));
  ASSERT_EQ(Run("export --model m.onnx --weights y.onnx --out z.onnx").code, 0);
  EXPECT_EQ(ReadAll(Path("z.onnx")), ReadAll(Path("y.onnx")));
  ASSERT_TRUE(WriteNpz(Path("bad.npz"), {{"b3", HostTensor({DType::kFloat32, {3}})}}).ok());
  ASSERT_TRUE(WriteNpz(Path("shape.npz"), {{"b2", HostTensor({DType::kFloat32, {4}})}}).ok());
  for (const char* weights : {"bad.npz", "shape.npz", "none.npz", "t.csv"}) {
    EXPECT_EQ(Run(StrCat("export --model m.onnx --out q.onnx --weights ", weights)).code, 1) << weights;
  }
  EXPECT_EQ(Run("export --model m.onnx --weights w.npz --out m.onnx").code, 1);
  EXPECT_FALSE(Exists("q.onnx"));
}

// x → product → Gelu as exporters write it → product → attention without heads, scores bent by Softplus → gate.
tiny::Model WrittenForms() {
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "w"}, {"h"}},
             {"Div", {"h", "root"}, {"scaled"}},
             {"Erf", {"scaled"}, {"erf"}},
             {"Add", {"erf", "one"}, {"sum"}},
             {"Mul", {"h", "sum"}, {"twice"}},
             {"Mul", {"twice", "half"}, {"gelu"}},
             {"MatMul", {"gelu", "k"}, {"scores"}},
             {"Softplus", {"scores"}, {"bent"}},
             {"Softmax", {"bent"}, {"weights"}},
             {"MatMul", {"weights", "v"}, {"mixed"}},
             {"Sigmoid", {"mixed"}, {"sigmoid"}},
             {"Mul", {"mixed", "sigmoid"}, {"swish"}},
             {"Mul", {"swish", "h"}, {"gated"}},
             {"Mul", {"gated", "half"}, {"input"}},
             {"Erf", {"input"}, {"y"}}};
  m.weights = {{"w", {4, 4}, tiny::Uniform(16, 0.5f, 1)},
               {"k", {4, 4}, tiny::Uniform(16, 0.5f, 2)},
               {"v", {4, 4}, tiny::Uniform(16, 0.5f, 3)},
               {"root", {}, {1.41421356f}},
               {"one", {}, {1}},
               {"half", {}, {0.5f}}};
  return m;
}

TEST_F(Cli, InspectShowsWrittenFormsAndWhatIsNearlyOne) {
  WrittenForms().Save(Path("forms.onnx"));
  const Outcome o = Run("inspect --model forms.onnx --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  EXPECT_EQ(json["recognized"], (Json{{"Gelu", 1}}));
  EXPECT_EQ(json["elementwise_forms"], (Json{{"SwiGlu", 1}}));
  ASSERT_EQ(json["nearly_recognized"].size(), 2u) << o.out;
  EXPECT_EQ(json["nearly_recognized"][0],
            "Attention: MatMul 'mixed_node': Softplus 'bent_node' is between its products");
  EXPECT_EQ(json["nearly_recognized"][1], "Gelu: Erf 'y_node': no form of it has the value around this node");
  const std::string page = Run("inspect --model forms.onnx").out;
  EXPECT_NE(page.find("recognized Gelu 1 in written form"), std::string::npos) << page;
  EXPECT_NE(page.find("forms      SwiGlu 1 in written form"), std::string::npos) << page;
  EXPECT_NE(page.find("nearly     Attention: MatMul 'mixed_node'"), std::string::npos) << page;
}

// x, quantized → integers · w → floats + b: nothing says what w stands for.
std::string UnscaledProduct() {
  using tiny::Message;
  const auto node = [](const std::string& op, const std::vector<std::string>& in, const std::vector<std::string>& out) {
    Message m;
    for (const std::string& name : in) m.Bytes(1, name);
    for (const std::string& name : out) m.Bytes(2, name);
    return m.Bytes(4, op);
  };
  const auto value = [](const std::string& name) {
    const Message dims = Message().Sub(1, Message().Bytes(2, "batch")).Sub(1, Message().Int(1, 2));
    return Message().Bytes(1, name).Sub(2, Message().Sub(1, Message().Int(1, 1).Sub(2, dims)));
  };
  const float bias[2] = {0.5f, 0.25f};
  Message graph;
  graph.Sub(1, node("DynamicQuantizeLinear", {"x"}, {"q", "scale", "zero"}));
  graph.Sub(1, node("MatMulInteger", {"q", "w", "zero"}, {"sums"}));
  graph.Sub(1, node("Cast", {"sums"}, {"floats"}).Sub(5, Message().Bytes(1, "to").Int(3, 1).Int(20, 2)));
  graph.Sub(1, node("Add", {"floats", "b"}, {"y"})).Bytes(2, "unscaled");
  graph.Sub(5, Message().Int(1, 2).Int(1, 2).Int(2, 3).Bytes(8, "w").Bytes(9, "\x01\x02\x03\x04"));
  graph.Sub(5, Message().Int(1, 2).Int(2, 1).Bytes(8, "b").Bytes(9, {reinterpret_cast<const char*>(bias), 8}));
  graph.Sub(11, value("x")).Sub(12, value("y"));
  return Message().Int(1, 7).Sub(7, graph).Sub(8, Message().Bytes(1, "").Int(2, 13)).text();
}

TEST_F(Cli, IntegersWithoutAScaleAreTrainedAroundOnlyOnRequest) {
  std::ofstream(Path("unscaled.onnx"), std::ios::binary) << UnscaledProduct();
  const Outcome o = Run("--model unscaled.onnx --max-steps 2");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("the weights of MatMulInteger (1) are stored as integers that cannot be trained"),
            std::string::npos)
      << o.err;
  EXPECT_EQ(Run("--model unscaled.onnx --max-steps 2 --train b --out r").code, 0);
}

TEST_F(Cli, InspectShowsWhatWouldBeTrained) {
  const Outcome o = Run("inspect --model soft.onnx --freeze 'b*' --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  EXPECT_TRUE(json["trainable"]);
  EXPECT_EQ(json["operators"]["MatMul"], 2);
  EXPECT_GT(json["training_flops_per_sample"], json["flops_per_sample"]);
  for (const Json& w : json["weights"]) {
    EXPECT_EQ(w["trained"], !w["name"].get<std::string>().starts_with("b")) << w;
    EXPECT_EQ(w["form"]["row"], "plain") << w;
  }
  EXPECT_NE(Run("inspect --model soft.onnx").out.find("nothing stands in the way"), std::string::npos);
  tiny::Model odd = tiny::Mlp(3);
  odd.nodes[2].type = "NonMaxSuppression";
  odd.nodes.push_back({"Frobnicate", {"y"}, {"z"}});
  odd.outputs = {"z"};
  odd.Save(Path("odd.onnx"));
  const Outcome bad = Run("inspect --model odd.onnx --json");
  ASSERT_EQ(bad.code, 0) << bad.err;
  EXPECT_FALSE(Json::parse(bad.out)["trainable"]);
  EXPECT_NE(bad.out.find("Frobnicate"), std::string::npos);
  EXPECT_NE(bad.out.find("NonMaxSuppression"), std::string::npos);
}

TEST_F(Cli, BenchSplitsTheStepByOperator) {
  const Outcome o = Run("bench --model m.onnx --batch-size 8 --gradient-accumulation-steps 2 --max-steps 4 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(json["seconds"].size(), 4);
  EXPECT_EQ(json["micro_batch"], 4);
  EXPECT_GT(json["seconds"][0], 0);
  EXPECT_NEAR(json["median_seconds"], (json["seconds"][1].get<double>() + json["seconds"][2].get<double>()) / 2, 1e-12);
  EXPECT_GE(json["arena_bytes"], json["arena_lower_bound_bytes"]);
  double split = 0, products = 0;
  for (const Json& op : json["operators"]) split += op["seconds"].get<double>();
  for (const Json& product : json["products"]) {
    products += product["nodes"].get<double>() * product["flops"].get<double>();
    EXPECT_GT(product["seconds_alone"], 0);
  }
  EXPECT_GT(split, 0);
  EXPECT_EQ(products, json["product_flops"]);
  EXPECT_GT(json["products_alone_seconds"], 0);
  EXPECT_LE(json["products_alone_seconds"], json["seconds"][0]);  // the fastest step contains them
  const Outcome page = Run("bench --model m.onnx --max-steps 2");
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_NE(page.out.find("operator"), std::string::npos) << page.out;
  EXPECT_NE(page.out.find("bandwidth"), std::string::npos) << page.out;
  const Outcome steps = Run("bench --model m.onnx --max-steps 2 --steps-only");
  EXPECT_EQ(steps.code, 0) << steps.err;
  EXPECT_EQ(steps.out.find("bandwidth"), std::string::npos) << steps.out;
}

TEST_F(Cli, ResultsThatCannotBeWrittenAreAnError) {
  const std::string program = BinaryPath("bin/onnxtrain");
  const int status =
      std::system(StrCat("cd '", folder_, "' && '", program, "' inspect --model m.onnx >/dev/full 2>.err").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(ReadAll(Path(".err")), "onnxtrain: error: stdout: No space left on device\n");
}

// From too little to load a backend to enough for everything.
TEST_F(Cli, AddressSpaceThatRunsOutIsNoCrash) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take terabytes of it";
#endif
  std::set<int> codes;
  for (int kib = 40000; kib <= 280000; kib += 8000) {
    const Outcome o = RunProcess("bench --model m.onnx --steps-only --max-steps 1 --threads 1 --backend cpu",
                                 StrCat("ulimit -v ", kib, " && "));
    codes.insert(o.code);
    EXPECT_TRUE(o.code == 0 || o.code == 1 || o.code == 127) << kib << " KiB: " << o.code << " " << o.err;
    if (o.code != 1) continue;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << kib << " KiB: " << o.err;
  }
  EXPECT_TRUE(codes.contains(0));
  EXPECT_TRUE(codes.contains(1));
}

TEST_F(Cli, AReaderThatGoesAwayIsNoCrash) {
  // The shell's own status is that of the last command: the program's is written to a file.
  const std::string program = BinaryPath("bin/onnxtrain");
  const std::string command =
      "cd '" + folder_ + "' && ( '" + program + "' inspect --model m.onnx; echo $? >code ) 2>err | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(ReadAll(Path("code")), "0\n") << ReadAll(Path("err"));
}

}  // namespace
}  // namespace onnxtrain
