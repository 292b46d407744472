// Answers that `predict` writes for language models.
#include <gmock/gmock.h>

#include "tests/tools/decoder_models.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace decoders;

class PredictText : public DecoderScratch {
 protected:
  Outcome Predict(const std::string& flags) { return Run("predict --max-new-tokens 6 " + flags); }
  std::vector<Json> Lines(const std::string& file) {
    std::vector<Json> lines;
    std::istringstream text(ReadAll(Path(file)));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
};

// A trained model answers chats as it has learned to, and prompts as `generate` does.
TEST_F(PredictText, AnswersPrompts) {
  Make("m", Appending(true), DotTemplate());
  WriteChat("c.jsonl", "x", "y");
  ASSERT_EQ(Run("--model m --data c.jsonl --epochs 150 --lr 0.05 --batch-size 1 --quiet --out r").code, 0);
  const Outcome chat = Predict("--model r/model --data c.jsonl --out a.jsonl");
  ASSERT_EQ(chat.code, 0) << chat.err;
  EXPECT_THAT(chat.out, HasSubstr("a.jsonl: 1 answers"));
  const Json expected = {{"sample", 0},      {"prompt", "x."}, {"prediction", "y"},
                         {"reference", "y"}, {"tokens", 1},    {"ended", true}};
  EXPECT_EQ(Lines("a.jsonl"), std::vector<Json>{expected});

  WriteAll(Path("p.jsonl"), "{\"question\": \"ab\"}\n{\"question\": \"a longer one\"}\n{\"question\": \"x\"}\n");
  const Outcome o = Predict("--model r/model --data p.jsonl --batch-size 2 --quiet --out b.jsonl");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::vector<Json> lines = Lines("b.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  for (const Json& line : lines) {
    const std::string prompt = line["prompt"].get<std::string>();
    const Outcome alone = Write(
        StrCat("--quiet --model r/model --max-new-tokens 6 --prompt '", prompt.substr(0, prompt.size() - 1), "'"));
    EXPECT_EQ(line["prediction"].get<std::string>() + "\n", alone.out);
    EXPECT_FALSE(line.contains("reference"));
  }
}

TEST_F(PredictText, ContinuesLinesOfTextAsCsv) {
  Make("m", Appending(true));
  WriteAll(Path("t.txt"), "one\ntwo three.\n");
  const Outcome o = Predict("--model m --data t.txt --out - --quiet");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, StartsWith("sample,prompt,prediction,reference,tokens,ended\n0,one,"));
  EXPECT_THAT(o.out, HasSubstr("\n1,two three.,"));
}

TEST_F(PredictText, DrawsAsGenerateDoes) {
  Make("m", Appending(true));
  WriteAll(Path("t.txt"), "one\n");
  const std::string flags = "--model m --temperature 3 --seed 7 --quiet ";
  const Outcome o = Predict(flags + "--data t.txt --out a.jsonl");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Lines("a.jsonl")[0]["prediction"].get<std::string>() + "\n",
            Write(flags + "--prompt one --max-new-tokens 6").out);
}

TEST_F(PredictText, ReadsPipes) {
  Make("m", Appending(true));
  WriteAll(Path("p.jsonl"), "{\"prompt\": \"a\"}\n");
  WriteAll(Path("i.jsonl"), "{\"input_ids\": [2, 3]}\n");
  const auto predict = [&](const std::string& file, const std::string& out) {
    return RunProcess(StrCat("predict --model m --max-new-tokens 6 --quiet --data - --out ", out),
                      StrCat("sh -c 'exec \"$0\" \"$@\" < ", file, "'"));
  };
  const Outcome o = predict("p.jsonl", "-");
  ASSERT_EQ(o.code, 0) << o.err;
  Predict("--model m --data p.jsonl --quiet --out same.csv");
  EXPECT_EQ(o.out, ReadAll(Path("same.csv")));
  EXPECT_THAT(predict("i.jsonl", "i.csv").err, HasSubstr("standard input: has no column of prompts"));
}

// The scores of tokens are written where they are asked for, and where samples are no texts.
TEST_F(PredictText, WritesScoresWhereTheyAreAskedFor) {
  Make("m", Appending(false));
  WriteAll(Path("t.txt"), "abcdefgh");
  const Outcome scores = Run("predict --model m --data t.txt --max-length 4 --loss mse --out s.csv");
  ASSERT_EQ(scores.code, 0) << scores.err;
  EXPECT_THAT(ReadAll(Path("s.csv")), StartsWith("sample,logits_0,logits_1,"));
  std::filesystem::remove(Path("m/tokenizer.json"));
  WriteAll(Path("i.jsonl"), "{\"input_ids\": [2, 3, 4], \"attention_mask\": [1, 1, 1]}\n");
  const Outcome ids = Run("predict --model m --data i.jsonl --out i.csv");
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_THAT(ReadAll(Path("i.csv")), StartsWith("sample,logits_0,logits_1,"));
}

TEST_F(PredictText, Refusals) {
  Make("m", Appending(true));
  WriteAll(Path("t.txt"), "one\n");
  WriteAll(Path("bad.jsonl"), "{\"prompt\": \"a\"}\n{\"prompt\": \"\"}\n");
  ExpectRefused(Predict("--model m --data bad.jsonl --out a.csv"), "the prompt is empty");
  const Outcome skipped = Predict("--model m --data bad.jsonl --on-bad-sample skip --out a.jsonl");
  ASSERT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_THAT(skipped.err, HasSubstr("left out 1 prompts"));
  EXPECT_EQ(Lines("a.jsonl").size(), 1u);
  ExpectRefused(Predict("--model m --data t.txt --max-length 4 --out a.csv"), "--max-length: has no effect on prompts");
  ExpectRefused(Predict("--model m --data t.txt --loss mse --out a.csv"), "--max-new-tokens: has no effect");
  ExpectRefused(Predict("--model m --data t.txt --top-p 0.5 --out a.csv"), "has no effect without --temperature");
}

}  // namespace
}  // namespace onnxtrain
