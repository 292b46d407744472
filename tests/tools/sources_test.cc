// Kinds of data through the program: what it reads, in which order, and how fast.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

const char* const kKinds[] = {"dog", "cat", "bird"};

class Sources : public Scratch {
 protected:
  Sources() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    const std::vector<float> u = tiny::Uniform(400, 1, 5);
    std::string csv = "a,b,c,d,kind\n", lines;
    for (int i = 0; i < 100; ++i) {
      StrAppend(&lines, "{\"x\": [", u[4 * i], ", ", u[4 * i + 1], ", ", u[4 * i + 2], ", ", u[4 * i + 3],
                "], \"kind\": \"", kKinds[i % 3], "\"}\n");
      StrAppend(&csv, u[4 * i], ",", u[4 * i + 1], ",", u[4 * i + 2], ",", u[4 * i + 3], ",", kKinds[i % 3], "\n");
    }
    WriteAll(Path("t.csv"), csv);
    WriteAll(Path("t.jsonl"), lines);
  }
  Outcome Train(const std::string& flags, const std::string& prefix = "") {
    return RunProcess("--model m.onnx --seed 3 --overwrite --epochs 2 --out r " + flags, prefix);
  }
  std::string TrainedModel(const std::string& flags, const std::string& prefix = "") {
    const Outcome run = Train(flags, prefix);
    EXPECT_EQ(run.code, 0) << flags << ": " << run.err;
    return run.code == 0 ? ReadAll(Path("r/model.onnx")) : "";
  }
  void Refuses(const std::string& flags, const std::string& part) { ExpectRefused(Train(flags), part); }
};

// Runs the program with a file as its standard input.
std::string From(const std::string& file) { return StrCat("sh -c 'exec \"$0\" \"$@\" < ", file, "'"); }

TEST_F(Sources, EqualSamplesOfEveryKindTrainEqually) {
  const std::string want = TrainedModel("--data t.csv --eval-split last:0.2");
  EXPECT_EQ(TrainedModel("--data t.jsonl --eval-split last:0.2"), want);
  EXPECT_EQ(TrainedModel("--data jsonl:t.jsonl --eval-split last:0.2"), want);
  EXPECT_EQ(TrainedModel("--data - --eval-split last:0.2", From("t.jsonl")), want);
  EXPECT_EQ(TrainedModel("--data - --eval-split last:0.2", From("t.csv")), want);
}

TEST_F(Sources, BadPipes) {
  WriteAll(Path("bad.jsonl"), "{\"x\": 1}\n{\n");
  ExpectRefused(Train("--data -", From("bad.jsonl")), "standard input: row 2: not a JSON object");
  Refuses("--data -", "standard input: there are no samples");
}

TEST_F(Sources, MessagesNameThePathOnce) {
  WriteAll(Path("b.csv"), "a,b,c,d,y\n1,2,3,4,0\n1,2,3,4,\n");
  ExpectRefused(Train("--data -", From("b.csv")), "error: standard input: row 3, column 'y': missing value");
  Refuses("--data ./b.csv", "error: ./b.csv: row 3, column 'y': missing value");
  const std::string dict = "{'descr': '|S1', 'fortran_order': False, 'shape': (2,)}";
  std::filesystem::create_directory(Path("f"));
  WriteAll(Path("f/label.npy"),
           StrCat("\x93NUMPY", std::string("\1\0", 2), std::string(1, static_cast<char>(dict.size())),
                  std::string(1, '\0'), dict, "a", std::string(1, '\0')));
  WriteAll(Path("f/x.npy"), *NpyPreamble({DType::kFloat32, {2, 4}}) + std::string(32, '\0'));
  Refuses("--data f", "error: f/label.npy: sample 1, column 'label': missing value");
  Refuses("--data ./b.csv --loss ce:label=y", "error: --loss …label: ./b.csv: row 3, column 'y': missing value");
}

// Runs the program behind a pipe that `shell` writes to.
std::string Behind(const std::string& shell) { return StrCat("sh -c '(", shell, ") | exec \"$0\" \"$@\"'"); }

const char kEndless[] = "while cat t.jsonl 2>/dev/null; do :; done";
const char kSixThousand[] = "for i in $(seq 60); do cat t.jsonl; done";

class Pipes : public Sources {
 protected:
  Outcome TrainOn(const std::string& shell, const std::string& flags) {
    return RunProcess("--model m.onnx --seed 3 --overwrite --batch-size 8 --data - --out r " + flags, Behind(shell));
  }
  Json Summary() const { return Json::parse(ReadAll(Path("r/summary.json"))); }
};

TEST_F(Pipes, AnEndlessPipeTrains) {
  const Outcome run = TrainOn(kEndless, "--max-steps 1200 --num-workers 0");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("an epoch is a window of 4096 samples"), std::string::npos) << run.err;
  EXPECT_EQ(Summary()["stop_reason"], "max_steps");
  EXPECT_EQ(Summary()["samples"], 1200 * 8) << "more than two windows";
  const std::string model = ReadAll(Path("r/model.onnx"));
  ASSERT_EQ(TrainOn(kEndless, "--max-steps 1200 --num-workers 3").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model);
  ASSERT_EQ(TrainOn(kEndless, "--max-steps 1200 --no-shuffle").code, 0);
  EXPECT_NE(ReadAll(Path("r/model.onnx")), model);
}

TEST_F(Pipes, ARunEndsWithItsPipe) {
  const Outcome run = TrainOn(kSixThousand, "--max-steps 10000");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Summary()["stop_reason"], "end_of_data");
  EXPECT_EQ(Summary()["steps"], 4096 / 8) << "whole windows";
}

TEST_F(Pipes, AShortPipeIsAFile) {
  ASSERT_EQ(TrainOn("cat t.jsonl", "--max-steps 50").code, 0);
  const std::string model = ReadAll(Path("r/model.onnx"));
  ASSERT_EQ(Run("--model m.onnx --seed 3 --overwrite --batch-size 8 --data t.jsonl --out r --max-steps 50").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model);
}

TEST_F(Pipes, ASignalEndsTheWaitForSamples) {
  const std::string shell =
      StrCat("sh -c '(", kSixThousand, "; sleep 20) | exec timeout --preserve-status -s TERM 8 ", "\"$0\" \"$@\"'");
  const Outcome run = RunProcess("--model m.onnx --batch-size 8 --data - --out r --max-steps 10000", shell);
  EXPECT_EQ(run.code, 75) << run.err;
}

TEST_F(Pipes, LaterSamplesMustFitTheFirst) {
  const auto fails = [&](const std::string& line, const std::string& part) {
    WriteAll(Path("last.jsonl"), line + "\n");
    const Outcome run = TrainOn(StrCat(kSixThousand, "; cat last.jsonl; ", kSixThousand), "--max-steps 10000");
    EXPECT_NE(run.code, 0) << line;
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  };
  fails(R"({"x": [1, 2, 3, 4], "kind": "fish"})", "'fish' is not among the 3 classes");
  fails(R"({"x": [1, 2, 3], "kind": "cat"})", "its shape [3] is not the [4] of the first line");
  fails(R"({"x": [1, 2, 3, 4)", "not a JSON object");
}

TEST_F(Pipes, AStreamCannotBeResumed) {
  ASSERT_EQ(TrainOn(kEndless, "--max-steps 600 --save-every 100").code, 0);
  ExpectRefused(RunProcess("--resume r --max-steps 1000", Behind(kEndless)),
                "which cannot go back to where the run was");
}

TEST_F(Sources, AClassMapOrdersTheClasses) {
  WriteAll(Path("map.txt"), "dog\nbird\ncat\n");
  ASSERT_EQ(Train("--data t.csv --class-map map.txt").code, 0);
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["classes"], Json({"dog", "bird", "cat"}));
  WriteAll(Path("map.csv"), "dog,1\ncat,0\nfish,2\n");
  Refuses("--data t.csv --class-map map.csv", "row 4, column 'kind': 'bird' is not among the 3 classes (--class-map");
  Refuses("--data t.csv --class-map none.txt", "--class-map: none.txt: No such file");
  Refuses("--data t.csv --class-map map.txt --loss mse", "--class-map: has no effect");
}

TEST_F(Sources, TheEvaluationSetHasAClassOfItsOwn) {
  WriteAll(Path("e.csv"), "a,b,c,d,kind\n1,2,3,4,fish\n");
  Refuses("--data t.csv --eval-data e.csv", "'fish' is not among the 3 classes (--class-map");
}

TEST_F(Sources, TheOrderIsThatOfTheSeedAlone) {
  const std::string flags = "--data t.csv --batch-size 32 --dump-order order.tsv ";
  ASSERT_EQ(Train(flags + "--num-workers 0").code, 0);
  const std::string want = ReadAll(Path("order.tsv"));
  EXPECT_EQ(std::ranges::count(want, '\n'), 200);
  EXPECT_EQ(want.substr(0, want.find('t')), "1\t0\t");
  EXPECT_NE(want.find("\n8\t1\tt.csv: row "), std::string::npos);
  for (const char* way : {"--num-workers 3", "--num-workers 1 --micro-batch-size 8"}) {
    ASSERT_EQ(Train(flags + way).code, 0);
    EXPECT_EQ(ReadAll(Path("order.tsv")), want) << way;
  }
  ASSERT_EQ(Train(flags + "--drop-last").code, 0);
  const std::string dropped = ReadAll(Path("order.tsv"));
  EXPECT_EQ(std::ranges::count(dropped, '\n'), 192);
  EXPECT_EQ(want.find(dropped.substr(0, dropped.find("\n4\t"))), 0u);
  // A run that was interrupted after it had recorded later updates.
  ASSERT_EQ(Run("--model m.onnx --seed 3 --epochs 2 --max-steps 5 --save-every 3 --out part " + flags).code, 0);
  std::filesystem::remove_all(Path("part/checkpoints/step-00000005"));
  ASSERT_EQ(Run("--resume part --max-steps 8 --epochs 2 --dump-order order.tsv --quiet").code, 0);
  EXPECT_EQ(ReadAll(Path("order.tsv")), want);
  Refuses("--data t.csv --dump-order t.csv", "--dump-order");
  Refuses("--data t.csv --dump-order none/order.tsv", "--dump-order none/order.tsv: No such file");
}

std::string Tensor(const std::string& name, const std::vector<uint64_t>& dims, int type, const std::string& bytes) {
  tiny::Message tensor;
  for (const uint64_t dim : dims) tensor.Int(1, dim);
  return tensor.Int(2, static_cast<uint64_t>(type)).Bytes(8, name).Bytes(9, bytes).text();
}

TEST_F(Sources, TestDataOfOnnx) {
  const auto write = [&](int set, uint64_t n, uint64_t width) {
    const std::string folder = StrCat("data/test_data_set_", set, "/");
    std::filesystem::create_directories(Path(folder));
    WriteAll(Path(folder + "input_0.pb"), Tensor("x", {n, width}, 1, std::string(n * width * 4, '\0')));
    WriteAll(Path(folder + "output_0.pb"), Tensor("y", {n, 3}, 1, std::string(n * 3 * 4, '\0')));
  };
  write(0, 2, 4);
  write(1, 3, 4);
  const Outcome run = Train("--data data --loss mse --label y");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/summary.json")))["samples"], 10);
  ASSERT_EQ(Train("--data data/test_data_set_1 --loss mse --label y").code, 0);
  write(10, 1, 5);
  Refuses("--data data --loss mse", "test_data_set_10/input_0.pb: f32[1,5] has other samples than f32[2,4]");
  WriteAll(Path("data/test_data_set_1/input_0.pb"), "nonsense");
  Refuses("--data data --loss mse", "test_data_set_1/input_0.pb: ");
}

TEST_F(Sources, BenchTimesTheLoader) {
  const Outcome bench = Run("bench --model m.onnx --data t.csv --json");
  ASSERT_EQ(bench.code, 0) << bench.err;
  const Json json = Json::parse(bench.out);
  EXPECT_EQ(json["samples"], 100);
  EXPECT_GT(json["read_samples_per_second"].get<double>(), 0);
  EXPECT_EQ(json["workers"][0]["num_workers"], 0);
  EXPECT_GE(json["workers"].size(), 2u);
  const Outcome page = Run("bench --model m.onnx --data t.jsonl");
  EXPECT_NE(page.out.find("--num-workers "), std::string::npos) << page.out;
}

}  // namespace
}  // namespace onnxtrain
