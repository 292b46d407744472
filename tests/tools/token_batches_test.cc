// Batches by tokens: --max-tokens-per-batch.
#include <nlohmann/json.hpp>

#include "frontend/data/sources/numpy.h"
#include "tests/tools/token_models.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

constexpr char kVocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n";
constexpr int64_t kRows = 7;

// Texts of 1 to 40 words; the label says whether there are more a than b.
std::string Texts(int count) {
  std::string table = "text\tlabel\n";
  for (int i = 0; i < count; ++i) {
    const int words = 1 + i * 7 % 40;
    for (int k = 0; k < words; ++k) table += (k * k + i) % 5 == 0 ? "c " : i % 2 == 0 ? "a " : "b ";
    table += StrCat("\t", i % 2, "\n");
  }
  return table;
}

class TokenBatching : public Scratch {
 protected:
  void SetUp() override {
    SaveTextClassifier(Path("m.onnx"), kRows, 2);
    WriteAll(Path("vocab.txt"), kVocabulary);
    WriteAll(Path("t.tsv"), Texts(200));
  }
  Outcome Train(const std::string& flags, const std::string& out = "r") {
    return Run(
        StrCat("--model m.onnx --data t.tsv --text text --tokenizer vocab.txt --label label --overwrite --quiet ",
               "--out ", out, " ", flags));
  }
  Json Summary(const std::string& out = "r") const { return Json::parse(ReadAll(Path(out + "/summary.json"))); }
  std::string Weights(const std::string& out) const { return ReadAll(Path(out + "/model.onnx")); }
  void Refuses(const std::string& flags, const std::string& part) { ExpectRefused(Train(flags), part); }
};

TEST_F(TokenBatching, BenchTimesTheTokenizer) {
  const Outcome bench = Run("bench --model m.onnx --data t.tsv --text text --tokenizer vocab.txt --label label --json");
  ASSERT_EQ(bench.code, 0) << bench.err;
  const Json rates = Json::parse(bench.out);
  const double tokenize = rates["tokenize_samples_per_second"], read = rates["read_samples_per_second"];
  EXPECT_GT(tokenize, 0);
  EXPECT_LT(tokenize, read) << "samples are read as ids from memory";
}

// The model of a run reads tokens in place of the texts that it was trained on.
TEST_F(TokenBatching, OtherDataMayBeTokenizedAlready) {
  ASSERT_EQ(Train("--epochs 1").code, 0);
  const std::vector<int64_t> ids = {2, 4, 4, 3, 2, 5, 5, 3};
  ASSERT_TRUE(WriteNpz(Path("tokens.npz"), {{"input_ids", HostTensor::FromInts({DType::kInt64, {2, 4}}, ids)},
                                            {"label", HostTensor::FromInts({0, 1})}})
                  .ok());
  WriteAll(Path("same.tsv"), "text\tlabel\na a\t0\nb b\t1\n");
  const auto loss = [&](const std::string& data) {
    const Outcome run = Run(StrCat("eval --json --quiet --model r/model.onnx --data ", data));
    EXPECT_EQ(run.code, 0) << run.err;
    return run.code == 0 ? Json::parse(run.out)["loss"].get<double>() : 0;
  };
  EXPECT_NEAR(loss("tokens.npz"), loss("same.tsv"), 1e-6);
  EXPECT_EQ(Run("grad --model r/model.onnx --data tokens.npz --out g.npz --quiet").code, 0);
  EXPECT_EQ(Run("compare --model r/model.onnx --data tokens.npz --reference g.npz --backend cpu --quiet").code, 0);
  EXPECT_EQ(Run("predict --model r/model.onnx --data tokens.npz --out p.csv --quiet").code, 0);
}

TEST_F(TokenBatching, LearnsFromEverySample) {
  const Outcome run = Train("--max-tokens-per-batch 128 --eval-data t.tsv --epochs 4 --lr 0.05 --dump-order order.txt");
  ASSERT_EQ(run.code, 0) << run.err;
  const Json summary = Summary();
  EXPECT_EQ(summary["samples"], 4 * 200);
  EXPECT_EQ(summary["eval"]["samples"], 200);
  EXPECT_GT(summary["eval"]["accuracy"].get<double>(), 0.95);
  EXPECT_EQ(summary["global_batch"], 3) << "samples of 42 tokens";
  EXPECT_LT(summary["steps"].get<int64_t>(), 4 * 200 / 3) << "there are batches of many short samples";
  EXPECT_EQ(summary["steps"].get<int64_t>() % 4, 0) << "as many in every epoch";
}

TEST_F(TokenBatching, WorkersChangeNothingAndAResumedRunIsTheWholeRun) {
  const std::string flags = "--max-tokens-per-batch 160 --epochs 2 ";
  ASSERT_EQ(Train(flags + "--num-workers 0", "whole").code, 0);
  ASSERT_EQ(Train(flags + "--num-workers 3", "threads").code, 0);
  EXPECT_EQ(Weights("threads"), Weights("whole"));
  ASSERT_EQ(Train(flags + "--max-steps 17", "part").code, 0);
  const Outcome resumed = Run("--resume part --epochs 2 --max-steps 1000 --quiet");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Summary("part")["steps"], Summary("whole")["steps"]);
  EXPECT_EQ(Weights("part"), Weights("whole"));
  const Outcome again = Run("--flagfile whole/config.flags --out again --quiet");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Weights("again"), Weights("whole"));
}

TEST_F(TokenBatching, AccumulationSplitsTheTokens) {
  const std::string flags = "--max-tokens-per-batch 336 --epochs 2 --optimizer sgd --lr 0.1 ";
  ASSERT_EQ(Train(flags + "--batch-size 8", "one").code, 0);
  ASSERT_EQ(Train(flags + "--batch-size 8 --gradient-accumulation-steps 2", "two").code, 0);
  EXPECT_EQ(Summary("two")["steps"], Summary("one")["steps"]) << "8 samples of at most 42 tokens in both";
  EXPECT_EQ(Summary("two")["micro_batch"], 4);
  EXPECT_NEAR(Summary("two")["final_loss"].get<double>(), Summary("one")["final_loss"].get<double>(), 1e-5);
  ASSERT_EQ(Train("--max-tokens-per-batch 336 --epochs 1 --auto").code, 0);
}

TEST_F(TokenBatching, SamplesOfOneLengthAreCounted) {
  SaveDecoder(Path("lm.onnx"), 5);
  std::string text;
  for (int i = 0; i < 200; ++i) text += "abcd\n";
  WriteAll(Path("t.txt"), text);
  const std::string flags =
      "--model lm.onnx --data t.txt --tokenizer chars --max-length 10 --epochs 1 --quiet --overwrite --out ";
  const Outcome tokens = Run(flags + "tokens --max-tokens-per-batch 89");
  ASSERT_EQ(tokens.code, 0) << tokens.err;
  ASSERT_EQ(Run(flags + "samples --batch-size 8").code, 0);
  EXPECT_EQ(Summary("tokens")["global_batch"], 8);
  EXPECT_EQ(Weights("tokens"), Weights("samples"));
}

TEST_F(TokenBatching, RefusesWhatItCannotBe) {
  Refuses("--max-tokens-per-batch 41", "needs at least the 42 tokens of the longest sample");
  Refuses("--max-tokens-per-batch 80 --gradient-accumulation-steps 2", "each of 2 micro-batches needs at least the 42");
  Refuses("--max-tokens-per-batch 128 --micro-batch-size 2", "--micro-batch-size: counts samples");
  Refuses("--max-tokens-per-batch 128 --lr-scale linear", "--lr-scale: follows the samples of a batch");
  Refuses("--max-tokens-per-batch 0", "--max-tokens-per-batch");
  ExpectRefused(Run("--model m.onnx --max-tokens-per-batch 128 --out n"),
                "--max-tokens-per-batch: has no effect: there is no --data");
  tiny::Mlp(3).Save(Path("mlp.onnx"));
  WriteAll(Path("n.csv"), "a,b,c,d,y\n1,2,3,4,0\n2,3,4,5,1\n0,1,2,3,2\n");
  ExpectRefused(Run("--model mlp.onnx --data n.csv --max-tokens-per-batch 128 --out n"), "the data has no tokens");
}

}  // namespace
}  // namespace onnxtrain
