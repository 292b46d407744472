// Text written by language models, with and without a cache of keys and values.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr std::string_view kChars = "abcdefghijklmnopqrstuvwxyz .";
constexpr int64_t kWidth = 8, kHeads = 2;
const auto kRows = static_cast<int64_t>(kChars.size()) + 2;  // and two special tokens

tiny::Weight Ints(const std::string& name, const std::vector<int64_t>& values, bool scalar = false) {
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return {.name = name,
          .shape = scalar ? std::vector<int64_t>{} : std::vector<int64_t>{std::ssize(values)},
          .values = {},
          .type = 7,
          .bytes = bytes};
}

tiny::Model Decoder() {
  tiny::Model m{.input = "input_ids", .input_shape = {-1, -2}};
  m.more_inputs = {{"attention_mask", {-1, -3}}};
  m.int_inputs = {"input_ids", "attention_mask"};
  m.outputs = {"logits"};
  m.nodes = {{"Gather", {"embedding", "input_ids"}, {"e"}}};
  m.weights = {{"embedding", {kRows, kWidth}, tiny::Uniform(kRows * kWidth, 2, 1)},
               Ints("minus_one", {-1}),
               Ints("zero", {0}),
               Ints("one", {1}),
               Ints("end", {1 << 30})};
  return m;
}

void AddCache(const std::vector<int64_t>& shape, tiny::Model* m) {
  for (const std::string part : {"key", "value"}) {
    m->more_inputs["past_key_values.0." + part] = shape;
    m->outputs.push_back("present.0." + part);
  }
}

// One layer of attention over what the mask counts, with positions from the mask: exporters of PyTorch append new keys
// to the cache.
tiny::Model Appending(bool cached) {
  tiny::Model m = Decoder();
  if (cached) AddCache({-1, -4, kWidth}, &m);
  m.nodes.push_back({"MatMul", {"e", "wv"}, {"v"}});
  for (const auto& [fresh, part] : {std::pair("e", "key"), {"v", "value"}}) {
    const std::string present = StrCat("present.0.", part);
    if (cached)
      m.nodes.push_back({"Concat", {StrCat("past_key_values.0.", part), fresh}, {present}, {}, {{"axis", 1}}});
    if (!cached) m.nodes.push_back({"Identity", {fresh}, {present}});
  }
  const std::vector<tiny::Op> rest = {
      {"CumSum", {"attention_mask", "one"}, {"counts"}},
      {"Shape", {"input_ids"}, {"shape"}},
      {"Gather", {"shape", "one"}, {"tokens"}},
      {"Mul", {"tokens", "minus_one"}, {"begin"}},
      {"Slice", {"counts", "begin", "end", "one"}, {"fresh_counts"}},
      {"Unsqueeze", {"fresh_counts", "minus_one"}, {"queries"}},
      {"Unsqueeze", {"counts", "one"}, {"keys"}},
      {"LessOrEqual", {"keys", "queries"}, {"before"}},
      {"Cast", {"attention_mask"}, {"is_key"}, {}, {{"to", 9}}},
      {"Unsqueeze", {"is_key", "one"}, {"is_key1"}},
      {"And", {"before", "is_key1"}, {"seen"}},
      {"Transpose", {"present.0.key"}, {"kt"}, {{"perm", {0, 2, 1}}}},
      {"MatMul", {"e", "kt"}, {"s"}},
      {"Where", {"seen", "s", "hidden"}, {"masked"}},
      {"Softmax", {"masked"}, {"p"}, {}, {{"axis", -1}}},
      {"MatMul", {"p", "present.0.value"}, {"a"}},
      {"MatMul", {"a", "head"}, {"logits"}},
  };
  m.nodes.insert(m.nodes.end(), rest.begin(), rest.end());
  m.weights.push_back({"wv", {kWidth, kWidth}, tiny::Uniform(kWidth * kWidth, 1, 2)});
  m.weights.push_back({"hidden", {1}, {-1e9f}});
  m.weights.push_back({"head", {kWidth, kRows}, tiny::Uniform(kWidth * kRows, 1, 3)});
  return m;
}

// A layer of onnxruntime-genai, whose GroupQueryAttention puts new keys behind those that count.
tiny::Model Ordering() {
  tiny::Model m = Decoder();
  AddCache({-1, 1, -4, kWidth}, &m);
  m.producer = "onnxruntime-genai";
  const std::vector<tiny::Op> rest = {
      {"MatMul", {"e", "wqkv"}, {"qkv"}},
      {"ReduceSum", {"attention_mask", "one"}, {"count"}},
      {"Sub", {"count", "one"}, {"last"}},
      {"Cast", {"last"}, {"lengths"}, {}, {{"to", 6}}},
      {"Shape", {"attention_mask"}, {"shape"}},
      {"Gather", {"shape", "one"}, {"all"}},
      {"Cast", {"all"}, {"total"}, {}, {{"to", 6}}},
      {"GroupQueryAttention",
       {"qkv", "", "", "past_key_values.0.key", "past_key_values.0.value", "lengths", "total"},
       {"a", "present.0.key", "present.0.value"},
       {},
       {{"num_heads", kHeads}, {"kv_num_heads", 1}},
       "com.microsoft"},
      {"MatMul", {"a", "head"}, {"logits"}}};
  m.nodes.insert(m.nodes.end(), rest.begin(), rest.end());
  m.weights.push_back({"wqkv", {kWidth, (kHeads + 2) * kWidth}, tiny::Uniform(kWidth * kWidth * (kHeads + 2), 1, 2)});
  m.weights.push_back({"head", {kHeads * kWidth, kRows}, tiny::Uniform(kHeads * kWidth * kRows, 1, 3)});
  return m;
}

class Generate : public Scratch {
 protected:
  // Makes a model folder with a tokenizer of single characters.
  void Make(const std::string& folder, const tiny::Model& model, const Json& settings = {{"eos_token", "</s>"}}) {
    Json vocabulary = Json::object(), added = Json::array();
    for (const char* token : {"<pad>", "</s>"}) {
      const size_t id = added.size();
      vocabulary[token] = id;
      added.push_back({{"id", id},
                       {"content", token},
                       {"special", true},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false}});
    }
    for (size_t i = 0; i < kChars.size(); ++i) vocabulary[std::string(1, kChars[i])] = i + 2;
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", "(?s)."}}}, {"behavior", "Isolated"}, {"invert", false}};
    std::filesystem::create_directories(Path(folder));
    WriteAll(Path(folder + "/tokenizer.json"),
             Json({{"added_tokens", added},
                   {"decoder", {{"type", "Fuse"}}},
                   {"model", {{"type", "WordLevel"}, {"unk_token", "<pad>"}, {"vocab", vocabulary}}},
                   {"pre_tokenizer", split}})
                 .dump());
    WriteAll(Path(folder + "/tokenizer_config.json"), settings.dump());
    model.Save(Path(folder + "/model.onnx"));
  }

  Outcome Write(const std::string& flags) { return Run("generate " + flags); }
};

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

TEST_F(Generate, DrawsAreRepeatable) {
  Make("m", Appending(true));
  const auto draw = [&](const std::string& more) {
    return Write("--quiet --model m --prompt ab --max-new-tokens 30 --temperature 2 " + more).out;
  };
  EXPECT_EQ(draw("--seed 3"), draw("--seed 3"));
  EXPECT_NE(draw("--seed 3"), draw("--seed 4"));
  EXPECT_EQ(draw("--top-k 1"), Write("--quiet --model m --prompt ab --max-new-tokens 30").out);
}

// A trained model answers as in its data, and stops.
TEST_F(Generate, AnswersWhatItHasLearned) {
  Make(
      "m", Appending(true),
      {{"eos_token", "</s>"},
       {"chat_template",
        "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% else %}.{% endif %}{% endfor %}"}});
  WriteAll(Path("c.jsonl"), R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]})"
                            "\n");
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
