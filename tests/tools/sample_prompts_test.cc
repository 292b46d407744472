// Prompts that a run answers at its evaluations.
#include <gmock/gmock.h>

#include "tests/tools/decoder_models.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace decoders;

class SamplePrompts : public DecoderScratch {
 protected:
  void SetUp() override {
    DecoderScratch::SetUp();
    Make("m", Appending(true), DotTemplate());
    WriteChat("c.jsonl", "x", "y");
  }

  // Trains on c.jsonl, which is also the evaluation data.
  Outcome Train(const std::string& flags, const std::string& out = "r") {
    return Run(StrCat("--data c.jsonl --eval-data c.jsonl --batch-size 1 --threads 1 --out ", out, " ", flags));
  }

  std::vector<Json> Samples(const std::string& run) {
    std::vector<Json> samples;
    std::istringstream lines(ReadAll(Path(run + "/samples.jsonl")));
    for (std::string line; std::getline(lines, line);) samples.push_back(Json::parse(line));
    return samples;
  }

  // The losses of all events.
  std::vector<Json> Losses(const std::string& run) {
    std::vector<Json> losses;
    for (const Json& event : Metrics(run))
      losses.push_back({event.value("loss", Json()), event.value("eval_loss", Json())});
    return losses;
  }
};

TEST_F(SamplePrompts, ShowWhatARunLearns) {
  const Outcome o = Train("--model m --epochs 150 --eval-every 50 --lr 0.05 --max-new-tokens 9 --sample-prompts 1");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::vector<Json> samples = Samples("r");
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples[0]["step"], 0);
  EXPECT_NE(samples[0]["answer"], "y");
  const Json last = {{"step", 150},      {"prompt_number", 0}, {"prompt", "x."}, {"answer", "y"},
                     {"reference", "y"}, {"tokens", 1},        {"ended", true}};
  EXPECT_EQ(samples[3], last);
  EXPECT_THAT(o.err, HasSubstr("sample     update 150: "));
  EXPECT_THAT(o.out, HasSubstr("samples.jsonl"));
  const std::string html = ReadAll(Path("r/report.html"));
  EXPECT_THAT(html, HasSubstr("<tr><td>x.</td><td>y</td><td>y</td></tr>"));
  EXPECT_THAT(html, HasSubstr("How the first answer has changed"));
}

// No loss and no weight changes by a bit, with and without a cache, an average of the weights and adapters.
TEST_F(SamplePrompts, ChangeNoNumber) {
  Make("plain", Appending(false), DotTemplate());
  for (const std::string flags : {"--model m --ema-decay 0.9", "--model plain", "--model m --lora-rank 2"}) {
    const std::string same = flags + " --epochs 6 --eval-every 2 --lr 0.05 --quiet --overwrite";
    Train(same, "without");
    const Outcome o = Train(same + " --max-new-tokens 9 --sample-prompts 1", "with");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(Losses("with"), Losses("without")) << flags;
    EXPECT_EQ(ReadAll(Path("with/model.onnx")), ReadAll(Path("without/model.onnx"))) << flags;
    EXPECT_EQ(Samples("with").size(), 4u);
  }
}

// `--max-new-tokens` alone has no effect.
TEST_F(SamplePrompts, FlagsOfTextNeedPrompts) {
  ExpectRefused(Train("--model m --max-new-tokens 9"), "--max-new-tokens: has no effect: nothing writes text");
}

// The last answer is that of the exported model: of the merged adapters, and of the average of the weights.
TEST_F(SamplePrompts, AnswerWithTheWeightsOfEvaluations) {
  for (const std::string flags : {"--lora-rank 2", "--ema-decay 0.5"}) {
    const Outcome o =
        Train("--model m --epochs 5 --lr 0.03 --quiet --overwrite --max-new-tokens 9 --sample-prompts 1 " + flags);
    ASSERT_EQ(o.code, 0) << o.err;
    const Json last = Samples("r").back();
    const Outcome written = Write("--quiet --model r/model --prompt x --max-new-tokens 9");
    EXPECT_EQ(last["answer"].get<std::string>() + "\n", written.out) << flags;
    EXPECT_NE(last["answer"], Samples("r").front()["answer"]) << flags;
  }
}

// Prompts of a file have messages, texts, or no reference; all are answered together.
TEST_F(SamplePrompts, ComeFromFiles) {
  WriteAll(Path("p.jsonl"),
           "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"hello\", \"completion\": \"\"}\n");
  WriteAll(Path("p.txt"), "one\nmore than the others\n\n");
  const std::string flags = "--model m --epochs 1 --quiet --overwrite --max-new-tokens 9 --sample-prompts ";
  Outcome o = Train(flags + "p.jsonl");
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<Json> samples = Samples("r");
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples[0]["prompt"], "a.");
  EXPECT_EQ(samples[0]["reference"], "b");
  EXPECT_EQ(samples[1]["prompt"], "hello.");
  EXPECT_FALSE(samples[1].contains("reference"));
  o = Train(flags + "p.txt");
  ASSERT_EQ(o.code, 0) << o.err;
  samples = Samples("r");
  ASSERT_EQ(samples.size(), 4u);
  // Together they are answered as alone.
  for (const int i : {2, 3}) {
    const std::string prompt = samples[i]["prompt"].get<std::string>();
    const Outcome alone = Write(
        StrCat("--quiet --model r/model --max-new-tokens 9 --prompt '", prompt.substr(0, prompt.size() - 1), "'"));
    EXPECT_EQ(samples[i]["answer"].get<std::string>() + "\n", alone.out);
  }
}

TEST_F(SamplePrompts, AreDrawnWithASeed) {
  const std::string flags =
      "--model m --epochs 1 --quiet --overwrite --max-new-tokens 9 --sample-prompts 1 --temperature 3 ";
  Train(flags);
  const Json first = Samples("r")[0];
  Train(flags);
  EXPECT_EQ(Samples("r")[0], first);
  Train(flags + "--seed 5");
  EXPECT_NE(Samples("r")[0], first);
}

// The prompt is the first half of a sample of plain text.
TEST_F(SamplePrompts, ContinuePlainText) {
  Make("p", Appending(true));
  WriteAll(Path("d.txt"), "a quick brown fox. a lazy dog. and so on and so forth.");
  const Outcome o =
      Run("--model p --data d.txt --eval-data d.txt --max-length 16 --max-steps 1 --batch-size 1 --quiet --out r "
          "--sample-prompts 2 --max-new-tokens 6");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json sample = Samples("r")[0];
  EXPECT_EQ(sample["prompt"], "a quick ");
  EXPECT_EQ(sample["reference"], "brown ");
}

// A resumed run keeps the answers up to its checkpoint.
TEST_F(SamplePrompts, AreKeptByResumedRuns) {
  ASSERT_EQ(
      Train("--model m --max-steps 4 --epochs 9 --eval-every 2 --quiet --max-new-tokens 9 --sample-prompts 1").code, 0);
  const std::vector<Json> before = Samples("r");
  ASSERT_EQ(before.size(), 3u);
  const Outcome o = Train(
      "--model m --max-steps 6 --epochs 9 --eval-every 2 --quiet --max-new-tokens 9 --sample-prompts 1 --resume auto");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::vector<Json> after = Samples("r");
  ASSERT_EQ(after.size(), 4u);
  EXPECT_EQ(std::vector<Json>(after.begin(), after.begin() + 3), before);
  EXPECT_EQ(after[3]["step"], 6);
}

// Rank 0 answers for all ranks, and no loss changes.
TEST_F(SamplePrompts, OfSeveralRanks) {
  const std::string flags =
      "launch --nproc 2 -- --model m --data c.jsonl --eval-data c.jsonl --max-steps 4 --eval-every 2 --batch-size 2 "
      "--threads 1 --quiet ";
  WriteAll(Path("c.jsonl"), ReadAll(Path("c.jsonl")) + ReadAll(Path("c.jsonl")));
  ASSERT_EQ(RunProcess(flags + "--out without").code, 0);
  const Outcome o = RunProcess(flags + "--out with --sample-prompts 1 --max-new-tokens 5");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Losses("with"), Losses("without"));
  EXPECT_EQ(Samples("with").size(), 3u);
  const Outcome divided = RunProcess(flags + "--out divided --sample-prompts 1 --tensor 2");
  EXPECT_NE(divided.code, 0);
  EXPECT_THAT(divided.err, HasSubstr("no rank has all weights"));
}

TEST_F(SamplePrompts, Refusals) {
  const std::string flags = "--model m --epochs 1 --quiet --max-new-tokens 9 --sample-prompts ";
  ExpectRefused(Run("--model m --data c.jsonl --epochs 1 --out r --max-new-tokens 9 --sample-prompts 1"),
                "there is no evaluation data");
  ExpectRefused(Train(flags + "missing.jsonl"), "--sample-prompts missing.jsonl: ");
  WriteAll(Path("n.csv"), "a,b\n1,2\n");
  ExpectRefused(Train(flags + "n.csv"), "has no prompts");
  WriteAll(Path("bad.jsonl"), "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"messages\": 3}\n");
  ExpectRefused(Train(flags + "bad.jsonl"), "bad.jsonl: ");
}

}  // namespace
}  // namespace onnxtrain
