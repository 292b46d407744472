// Text written by language models, with and without a cache of keys and values.
#include <gmock/gmock.h>

#include "tests/tools/decoder_models.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;
using namespace decoders;

using Generate = DecoderScratch;

// A model writes the same text with and without its cache.
TEST_F(Generate, CacheChangesNothing) {
  Make("plain", Appending(false));
  Make("cached", Appending(true));
  const std::string flags = " --prompt 'a b c hello' --max-new-tokens 40";
  const Outcome plain = Write("--model plain" + flags), cached = Write("--model cached" + flags);
  ASSERT_EQ(plain.code, 0) << plain.err;
  ASSERT_EQ(cached.code, 0) << cached.err;
  EXPECT_THAT(plain.err, HasSubstr("no cache"));
  EXPECT_THAT(cached.err, HasSubstr("with its cache"));
  EXPECT_GT(plain.out.size(), 2u);
  EXPECT_EQ(plain.out, cached.out);
}

TEST_F(Generate, ContinuesAnOrderedCache) {
  Make("m", Ordering());
  const Outcome o = Write("--model m --prompt 'once upon' --max-new-tokens 20");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("with its cache"));
}

// A prompt of more than one chunk is as if its answer had been written token by token.
TEST_F(Generate, ReadsLongPrompts) {
  Make("plain", Appending(false));
  Make("cached", Appending(true));
  std::string prompt;
  for (int i = 0; i < 150; ++i) prompt += kChars[i * 7 % 26];
  const std::string flags = StrCat(" --quiet --prompt '", prompt, "' --max-new-tokens 12");
  const Outcome plain = Write("--model plain" + flags), cached = Write("--model cached" + flags);
  ASSERT_EQ(cached.code, 0) << cached.err;
  EXPECT_EQ(plain.out, cached.out);
}

// The memory of the cache has room for 512 tokens at first. A text continues as before when it is full: after a token
// or within a prompt.
TEST_F(Generate, CachesGrow) {
  Make("plain", Appending(false));
  Make("cached", Appending(true));
  Make("ordered", Ordering());
  std::string prompt;
  for (int i = 0; i < 500; ++i) prompt += kChars[i * 7 % 26];
  const auto write = [&](const std::string& model, const std::string& text, int64_t tokens) {
    const Outcome o = Write(StrCat("--quiet --model ", model, " --prompt '", text, "' --max-new-tokens ", tokens));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out.substr(0, o.out.find('\n'));
  };
  EXPECT_EQ(write("cached", prompt, 40), write("plain", prompt, 40));
  const std::string all = write("ordered", prompt, 40);
  ASSERT_EQ(all.size(), 40);
  EXPECT_EQ(write("ordered", prompt + all.substr(0, 25), 15), all.substr(25));
}

TEST_F(Generate, DrawsAreRepeatable) {
  Make("m", Appending(true));
  const auto draw = [&](const std::string& more) {
    return Write("--quiet --model m --prompt ab --max-new-tokens 30 --temperature 2 " + more).out;
  };
  EXPECT_EQ(draw("--seed 3"), draw("--seed 3"));
  EXPECT_NE(draw("--seed 3"), draw("--seed 4"));
  EXPECT_EQ(draw("--top-k 1"), Write("--quiet --model m --prompt ab --max-new-tokens 30").out);
}

// generation_config.json says how a model is sampled, unless a temperature is given.
TEST_F(Generate, SamplesAsTheFolderSays) {
  Make("m", Appending(true));
  const auto write = [&](const std::string& more) {
    return Write("--model m --prompt ab --max-new-tokens 30 --seed 3 " + more);
  };
  const std::string greedy = write("--quiet").out, drawn = write("--quiet --temperature 2 --top-p 0.9 --top-k 5").out;
  ASSERT_NE(greedy, drawn);
  WriteAll(Path("m/generation_config.json"), R"({"do_sample": true, "temperature": 2.0, "top_p": 0.9, "top_k": 5})");
  const Outcome o = write("");
  EXPECT_EQ(o.out, drawn);
  EXPECT_THAT(o.err, HasSubstr("generation_config.json says: --temperature 2 --top-p 0.9 --top-k 5"));
  EXPECT_EQ(write("--quiet --temperature 0").out, greedy);
  WriteAll(Path("m/generation_config.json"), R"({"temperature": 2.0, "top_p": 0.9})");
  EXPECT_EQ(write("--quiet").out, greedy);
  WriteAll(Path("m/generation_config.json"), R"({"do_sample": true, "temperature": "hot", "top_p": -1})");
  EXPECT_EQ(write("--quiet").out, write("--quiet --temperature 1").out);
}

// A trained model answers as in its data, and stops.
TEST_F(Generate, AnswersWhatItHasLearned) {
  Make("m", Appending(true), DotTemplate());
  WriteChat("c.jsonl", "x", "y");
  const Outcome trained = Run("--model m --data c.jsonl --epochs 150 --lr 0.05 --batch-size 1 --quiet --out r");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome o = Write("--model r --prompt x --max-new-tokens 9");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "y\n");
  EXPECT_THAT(o.err, HasSubstr("a user's message"));
  const Outcome chat = RunProcess("generate --chat --quiet --model r --prompt x");
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(chat.out, "y\n");
}

// A run writes its model twice, and both can be read.
TEST_F(Generate, ReadsRunsWithExternalData) {
  tiny::Model m = Appending(false);
  for (tiny::Weight& w : m.weights) w.file = w.name == "embedding" ? "model.onnx.data" : "";
  Make("m", m);
  WriteAll(Path("d.txt"), "a quick brown fox. a lazy dog.\n");
  const Outcome trained = Run("--model m --data d.txt --max-steps 2 --max-length 8 --batch-size 1 --quiet --out r");
  ASSERT_EQ(trained.code, 0) << trained.err;
  ASSERT_TRUE(std::filesystem::exists(Path("r/model/model.onnx.data")));
  const Outcome first = Write("--quiet --model r/model.onnx --prompt ab --max-new-tokens 9"),
                second = Write("--quiet --model r/model --prompt ab --max-new-tokens 9");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.out, second.out);
}

// An adapter counts beside its base as in the merged model.
TEST_F(Generate, ReadsAdapters) {
  Make("m", Appending(true), DotTemplate());
  WriteChat("c.jsonl", "x", "y");
  const Outcome trained =
      Run("--model m --data c.jsonl --lora-rank 2 --epochs 40 --lr 0.1 --batch-size 1 --quiet --out r");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string flags = " --quiet --prompt x --max-new-tokens 9";
  const Outcome base = Write("--model m" + flags), merged = Write("--model r/model" + flags),
                adapter = Write("--model m --adapter r/adapter" + flags);
  ASSERT_EQ(adapter.code, 0) << adapter.err;
  EXPECT_EQ(adapter.out, merged.out);
  EXPECT_NE(adapter.out, base.out);
}

TEST_F(Generate, Refusals) {
  Make("m", Appending(true));
  ExpectRefused(Write("--model m"), "--prompt: missing");
  ExpectRefused(Write("--model m --chat"), "needs a chat template");
  ExpectRefused(Write("--model m --prompt ''"), "the value is empty");
  ExpectRefused(Write("--model m --prompt a --top-p 0.5"), "has no effect without --temperature");
  ExpectRefused(Write("--model m --prompt a --mixed-precision fp16"), "float32 (no) or bf16");
  std::filesystem::remove(Path("m/tokenizer.json"));
  ExpectRefused(Write("--model m --prompt a"), "no tokenizer");
}

// A model that reads later tokens cannot write the next one.
TEST_F(Generate, RefusesModelsThatLookAhead) {
  tiny::Model m = Decoder();
  m.more_inputs.clear();
  m.nodes.push_back({"ReduceMean", {"e"}, {"mean"}, {{"axes", {1}}}});
  m.nodes.push_back({"Add", {"e", "mean"}, {"x"}});
  m.nodes.push_back({"MatMul", {"x", "head"}, {"logits"}});
  m.weights.push_back({"head", {kWidth, kRows}, tiny::Uniform(kWidth * kRows, 1, 3)});
  Make("m", m);
  ExpectRefused(Write("--model m --prompt a"), "depend on later tokens");
}

}  // namespace
}  // namespace onnxtrain
