// Runs on pairs of answers: the reference, resuming, evaluation alone and in training, forms of data, several ranks.
#include <gmock/gmock.h>

#include <cmath>

#include "frontend/data/sources/numpy.h"
#include "tests/paths.h"
#include "tests/tools/decoder_models.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;
using namespace decoders;

class Preferences : public DecoderScratch {
 protected:
  void SetUp() override {
    Make("m", Appending(false), DotTemplate());
    std::string lines, csv = "prompt,chosen,rejected\n";
    Json list = Json::array();
    for (int64_t i = 0; i < 20; ++i) {
      const Json row = {{"prompt", Word(i, 3)}, {"chosen", Word(i + 5, 2 + i % 3)}, {"rejected", Word(3 * i, 4)}};
      lines += row.dump() + "\n";
      csv += StrCat(row["prompt"].get<std::string>(), ",", row["chosen"].get<std::string>(), ",",
                    row["rejected"].get<std::string>(), "\n");
      list.push_back(row);
    }
    WriteAll(Path("p.jsonl"), lines);
    WriteAll(Path("p.csv"), csv);
    WriteAll(Path("p.json"), list.dump());
  }

  static std::string Word(int64_t first, int64_t length) {
    std::string word;
    for (int64_t k = 0; k < length; ++k) word += static_cast<char>('a' + (first * 7 + k * k * 3) % 26);
    return word;
  }

  static constexpr const char* kBase =
      "--eval-split last:0.3 --batch-size 4 --lr 0.5 --optimizer sgd --lr-scheduler constant "
      "--log-every 1 --threads 1 --mixed-precision no ";
  Outcome Train(const std::string& flags, const std::string& model = "m", const std::string& data = "p.jsonl") {
    return Run(StrCat("train --model ", model, " --data ", data, " ", kBase, flags));
  }

  Json Evaluate(const std::string& flags) {
    const Outcome o = Run("eval --json --quiet --threads 1 " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json();
  }
  void ExpectEvaluatesAs(const Json& event, const Json& evaluated) {
    for (const char* name : {"loss", "accuracy", "reward_margin", "chosen_reward", "rejected_logp"})
      EXPECT_NEAR(evaluated.value(name, std::nan("")), event.value(StrCat("eval_", name), std::nan("")), 1e-5) << name;
  }
  std::vector<double> Losses(const std::string& run) const {
    std::vector<double> losses;
    for (const Json& event : Metrics(run)) {
      for (const char* name : {"loss", "eval_loss", "eval_reward_margin"})
        if (event.contains(name)) losses.push_back(event[name]);
    }
    return losses;
  }
};

TEST_F(Preferences, ResumeWithTheReferenceOfTheBeginning) {
  for (const std::string loss : {"dpo:beta=0.5", "ipo", "simpo", "orpo"}) {
    const std::string flags = StrCat("--loss ", loss, " --save-every 2 --overwrite ");
    ASSERT_EQ(Train(flags + "--max-steps 6 --out whole").code, 0);
    ASSERT_EQ(Train(flags + "--max-steps 4 --out cut").code, 0);
    const Outcome resumed = Run("train --verbose --resume cut --max-steps 6");
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(ReadAll(Path("cut/model.onnx")), ReadAll(Path("whole/model.onnx"))) << loss;
    const bool compares = loss.starts_with("dpo") || loss == "ipo";
    EXPECT_EQ(Exists("cut/reference.npz"), compares);
    EXPECT_EQ(resumed.err.find("log-probabilities are those of cut/reference.npz") != std::string::npos, compares)
        << resumed.err;
    const std::vector<double> whole = Losses("whole"), cut = Losses("cut");
    ASSERT_GE(cut.size(), 4u);
    EXPECT_TRUE(std::equal(cut.end() - 4, cut.end(), whole.end() - 4)) << loss;
  }
}

// The file counts only for its model and its samples.
TEST_F(Preferences, EvaluateTheReferenceAgainForOtherScores) {
  ASSERT_EQ(Train("--max-steps 2 --save-every 1 --out r").code, 0);
  auto arrays = ReadNpz(Path("r/reference.npz"));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  for (auto& [name, value] : *arrays) {
    if (name == "identity") value.mutable_data<uint8_t>()[0] ^= 1;
  }
  ASSERT_TRUE(WriteNpz(Path("r/reference.npz"), *arrays).ok());
  const Outcome other = Run("train --verbose --resume r --max-steps 3");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("the model before its first update, evaluated in"));
  WriteAll(Path("r/reference.npz"), "no archive");
  const Outcome broken = Run("train --verbose --resume r --max-steps 4");
  ASSERT_EQ(broken.code, 0) << broken.err;
  EXPECT_THAT(broken.err, HasSubstr("the model before its first update, evaluated in"));
}

TEST_F(Preferences, EvalReportsWhatTrainingReported) {
  ASSERT_EQ(Train("--loss dpo:beta=0.5 --max-steps 6 --out r").code, 0);
  std::string rows = ReadAll(Path("p.jsonl"));
  for (int64_t i = 0; i < 14; ++i) rows = rows.substr(rows.find('\n') + 1);  // the last 30 %
  WriteAll(Path("e.jsonl"), rows);
  const Json event = Metrics("r").back();
  ASSERT_GT(std::abs(event.value("eval_reward_margin", 0.0)), 1e-3);
  ExpectEvaluatesAs(event, Evaluate("--model r/model.onnx --data e.jsonl"));
  ExpectEvaluatesAs(event, Evaluate("--model r/model --data e.jsonl --reference-model m"));
  ExpectRefused(Run("eval --model m --data e.jsonl"), "--loss dpo: compares with a reference: which model is it?");
  EXPECT_NEAR(Evaluate("--model m --data e.jsonl --reference-model m").value("loss", 0.0), std::log(2), 1e-6);
  EXPECT_TRUE(Evaluate("--model m --data e.jsonl --loss simpo").contains("reward_margin"));
  ExpectRefused(Run("eval --model m --data e.jsonl --loss simpo --reference-model m"),
                "--reference-model: has no effect on loss simpo");
  ExpectRefused(Run("grad --model m --data e.jsonl --out g.npz"), "compares with a reference");
}

// An adapter begins as nothing, so that the first loss is that of the whole model; merged, it scores as it does apart.
TEST_F(Preferences, TrainAdaptersByEachLoss) {
  for (const std::string loss : {"dpo:beta=0.5", "ipo", "simpo", "orpo"}) {
    SCOPED_TRACE(loss);
    const bool compares = loss.starts_with("dpo") || loss == "ipo";
    const std::string flags = StrCat("--loss ", loss, " --overwrite --max-steps 6 --out ");
    ASSERT_EQ(Train(flags + "whole").code, 0);
    ASSERT_EQ(Train(flags + "r --lora-rank 2").code, 0);
    EXPECT_NEAR(Losses("r")[0], Losses("whole")[0], 1e-5 * std::abs(Losses("whole")[0]));
    EXPECT_NE(Losses("r").back(), Losses("whole").back());
    const Json with = Evaluate("--model m --adapter r/adapter --data p.jsonl --loss " + loss);
    const Json merged = Evaluate(StrCat("--model r/model.onnx --data p.jsonl", compares ? " --reference-model m" : ""));
    EXPECT_NEAR(with.value("loss", 0.0), merged.value("loss", 1.0), 1e-4);
    EXPECT_NEAR(with.value("reward_margin", 0.0), merged.value("reward_margin", 1.0), 1e-4);
    EXPECT_NE(with.value("reward_margin", 0.0), 0);
  }
}

// A model that has learned answers may learn preferences, and the other way round.
TEST_F(Preferences, FollowOtherTraining) {
  WriteChat("c.jsonl", "ab", "cd");
  ASSERT_EQ(Run("train --model m --data c.jsonl --max-steps 1 --batch-size 1 --quiet --out sft").code, 0);
  const Outcome preferences = Run("train --model sft/model --data p.jsonl --max-steps 1 --quiet --out dpo");
  ASSERT_EQ(preferences.code, 0) << preferences.err;
  EXPECT_EQ(Summary("dpo")["loss"], "dpo:beta=0.1");
  const Outcome chats = Run("eval --model dpo/model --data c.jsonl");
  EXPECT_EQ(chats.code, 0) << chats.err;
}

TEST_F(Preferences, TrainWithAnotherReference) {
  ASSERT_EQ(Train("--max-steps 3 --out first").code, 0);
  const Outcome o = Train("--reference-model m --max-steps 1 --out second", "first/model");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json before = Metrics("second").front();
  EXPECT_NEAR(before.value("eval_loss", 0.0), Metrics("first").back().value("eval_loss", 1.0), 1e-6);
  EXPECT_NE(before.value("eval_reward_margin", 0.0), 0);
}

TEST_F(Preferences, ComeFromJsonAndCsv) {
  ASSERT_EQ(Train("--max-steps 3 --out lines").code, 0);
  for (const std::string kind : {"json", "csv"}) {
    const Outcome o = Train("--max-steps 3 --out " + kind, "m", "p." + kind);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(Losses(kind), Losses("lines"));
  }
}

TEST_F(Preferences, TrainOnSeveralRanks) {
  if (!std::filesystem::exists(BinaryPath("lib/libonnxtrain_comm.so")))
    GTEST_SKIP() << "built without libtorch (ONNXTRAIN_TORCH)";
  ASSERT_EQ(Train("--max-steps 4 --out one").code, 0);
  const std::string launch = StrCat("launch --nproc 2 -- --model m --data p.jsonl ", kBase, "--max-steps 4 ");
  for (const std::string shard : {"none", "optimizer"}) {
    const Outcome o = RunProcess(StrCat(launch, "--shard ", shard, " --out ", shard));
    ASSERT_EQ(o.code, 0) << o.err;
    const std::vector<double> one = Losses("one"), two = Losses(shard);
    ASSERT_EQ(two.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * std::max(1.0, std::abs(one[i])));
  }
  const Outcome parts = RunProcess(launch + "--tensor 2 --out t");
  EXPECT_THAT(parts.err, HasSubstr("pairs of answers need the whole model on each rank"));
}

}  // namespace
}  // namespace onnxtrain
