// Language models on chats and on answers to prompts: which tokens carry loss, what is left out, packing, and runs.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>

#include "frontend/base/strings.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/token_models.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// Single characters, and the special tokens of chats.
const std::vector<std::string> kTokens = {"<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
constexpr std::string_view kChars = "abcdefghijklmnopqrstuvwxyz \n.:";
const auto kRows = static_cast<int64_t>(kTokens.size() + kChars.size());

constexpr char kChatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::vector<int64_t> Encode(std::string_view text) {
  std::vector<int64_t> ids;
  while (!text.empty()) {
    size_t special = 0;
    while (special < kTokens.size() && !text.starts_with(kTokens[special])) ++special;
    const bool is_special = special < kTokens.size();
    ids.push_back(is_special ? static_cast<int64_t>(special)
                             : static_cast<int64_t>(kTokens.size() + kChars.find(text[0])));
    text.remove_prefix(is_special ? kTokens[special].size() : 1);
  }
  return ids;
}

// A text whose parts in ⟦⟧ carry loss.
struct Marked {
  std::vector<int64_t> ids, labels;  // labels: the next token where it counts, else -100
};
Marked Mark(std::string_view text) {
  Marked marked;
  std::vector<bool> trained;
  for (bool inside = false; !text.empty(); inside = !inside) {
    const std::string_view border = inside ? "⟧" : "⟦";
    const size_t end = std::min(text.find(border), text.size());
    for (const int64_t id : Encode(text.substr(0, end))) {
      marked.ids.push_back(id);
      trained.push_back(inside);
    }
    text.remove_prefix(std::min(end + border.size(), text.size()));
  }
  for (size_t i = 0; i < marked.ids.size(); ++i)
    marked.labels.push_back(i + 1 < marked.ids.size() && trained[i + 1] ? marked.ids[i + 1] : -100);
  return marked;
}

class Chats : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    Json vocabulary = Json::object(), added = Json::array();
    for (size_t i = 0; i < kTokens.size(); ++i) {
      vocabulary[kTokens[i]] = i;
      added.push_back({{"id", i},
                       {"content", kTokens[i]},
                       {"special", true},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false}});
    }
    for (size_t i = 0; i < kChars.size(); ++i) vocabulary[std::string(1, kChars[i])] = kTokens.size() + i;
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", "(?s)."}}}, {"behavior", "Isolated"}, {"invert", false}};
    std::filesystem::create_directories(Path("m"));
    WriteAll(Path("m/tokenizer.json"),
             Json({{"added_tokens", added},
                   {"model", {{"type", "WordLevel"}, {"unk_token", "<pad>"}, {"vocab", vocabulary}}},
                   {"pre_tokenizer", split}})
                 .dump());
    WriteAll(Path("m/tokenizer_config.json"),
             Json({{"eos_token", "</s>"}, {"bos_token", {{"content", "<s>"}}}, {"chat_template", kChatml}}).dump());
    SaveDecoder(Path("m/model.onnx"), kRows);
  }

  void WriteLines(const std::string& name, const std::vector<Json>& rows) const {
    std::string text;
    for (const Json& row : rows) text += row.dump() + "\n";
    WriteAll(Path(name), text);
  }

  double Loss(const std::string& flags) {
    const Outcome o = Run("eval --quiet --json " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out)["loss"].get<double>() : -1;
  }

  // Returns the loss of samples that are given as token ids and labels.
  double LossOf(const std::vector<std::string>& texts) {
    int64_t length = 0;
    std::vector<Marked> samples;
    for (const std::string& text : texts) {
      samples.push_back(Mark(text));
      length = std::max<int64_t>(length, std::ssize(samples.back().ids));
    }
    HostTensor ids({DType::kInt64, {std::ssize(samples), length}}), labels(ids.type());
    for (int64_t i = 0; i < ids.size(); ++i) labels.SetInt(i, -100);
    for (int64_t s = 0; s < std::ssize(samples); ++s) {
      for (int64_t k = 0; k < std::ssize(samples[s].ids); ++k) {
        ids.SetInt(s * length + k, samples[s].ids[k]);
        labels.SetInt(s * length + k, samples[s].labels[k]);
      }
    }
    EXPECT_TRUE(WriteNpz(Path("twin.npz"), {{"ids", ids}, {"labels", labels}}).ok());
    return Loss("--model m --data twin.npz --input input_ids=ids --label labels --loss cross_entropy");
  }

  Json Summary(const std::string& out) const { return Json::parse(ReadAll(Path(out + "/summary.json"))); }
};

Json MakeMessage(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

TEST_F(Chats, TurnsOfTheAssistantCount) {
  WriteLines("c.jsonl",
             {{{"messages", {MakeMessage("user", "hello"), MakeMessage("assistant", "good day")}}},
              {{"messages",
                {MakeMessage("system", "be brief"), MakeMessage("user", "one"), MakeMessage("assistant", "two"),
                 MakeMessage("user", "three"), MakeMessage("assistant", "four")}}}});
  EXPECT_NEAR(Loss("--model m --data c.jsonl"),
              LossOf({"<|im_start|>user\nhello<|im_end|><|im_start|>assistant\n⟦good day<|im_end|>⟧",
                      "<|im_start|>system\nbe brief<|im_end|><|im_start|>user\none<|im_end|><|im_start|>assistant\n⟦two"
                      "<|im_end|>⟧<|im_start|>user\nthree<|im_end|><|im_start|>assistant\n⟦four<|im_end|>⟧"}),
              1e-6);
}

TEST_F(Chats, GenerationBlocksSayWhatCounts) {
  const std::string chat =
      "{% for m in messages %}{% if m.role == 'assistant' %}: {% generation %}{{ m.content }}.{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}\n{% endfor %}";  // a line end behind a block is not part of the text
  WriteAll(Path("own.jinja"), chat);
  WriteLines("c.jsonl",
             {{{"messages", {MakeMessage("user", "ab"), MakeMessage("assistant", "cd"), MakeMessage("user", "e")}}}});
  EXPECT_NEAR(Loss("--model m --data c.jsonl --chat-template own.jinja"), LossOf({"ab: ⟦cd.⟧e"}), 1e-6);
  WriteAll(Path("m/chat_template.json"), Json{{"chat_template", chat}}.dump());
  EXPECT_NEAR(Loss("--model m --data c.jsonl"), LossOf({"ab: ⟦cd.⟧e"}), 1e-6);
  WriteAll(Path("m/chat_template.json"), R"({"chat_template": "{{ messages[9] }}"})");
  WriteAll(Path("m/chat_template.jinja"), chat);
  EXPECT_NEAR(Loss("--model m --data c.jsonl"), LossOf({"ab: ⟦cd.⟧e"}), 1e-6);
  EXPECT_NEAR(Loss("--model m --data c.jsonl --loss-on all"), LossOf({"a⟦b: cd.e⟧"}), 1e-6);
}

TEST_F(Chats, AnswersToPromptsCount) {
  WriteLines("p.jsonl",
             {{{"prompt", "one plus one is "}, {"completion", "two."}}, {{"prompt", "a"}, {"completion", "b"}}});
  const double loss = LossOf({"one plus one is ⟦two.</s>⟧", "a⟦b</s>⟧"});
  EXPECT_NEAR(Loss("--model m --data p.jsonl"), loss, 1e-6);
  WriteAll(Path("p.csv"), "q,n,r\none plus one is ,1,two.\na,2,b\n");
  EXPECT_NEAR(Loss("--model m --data p.csv --prompt q --completion r"), loss, 1e-6);
  WriteLines("m.jsonl", {{{"prompt", {MakeMessage("user", "hi")}}, {"completion", {MakeMessage("assistant", "yes")}}}});
  EXPECT_NEAR(Loss("--model m --data m.jsonl"),
              LossOf({"<|im_start|>user\nhi<|im_end|><|im_start|>assistant\n⟦yes<|im_end|>⟧"}), 1e-6);
}

TEST_F(Chats, InstructionsAndConversationsAreRead) {
  const double loss = LossOf({"<|im_start|>user\nadd\none<|im_end|><|im_start|>assistant\n⟦two<|im_end|>⟧"});
  WriteLines("i.jsonl", {{{"instruction", "add"}, {"input", "one"}, {"output", "two"}}});
  EXPECT_NEAR(Loss("--model m --data i.jsonl"), loss, 1e-6);
  WriteLines("q.jsonl", {{{"question", "add\none"}, {"answer", "two"}}});
  EXPECT_NEAR(Loss("--model m --data q.jsonl"), loss, 1e-6);
  WriteLines("s.jsonl",
             {{{"conversations", {{{"from", "human"}, {"value", "add\none"}}, {{"from", "gpt"}, {"value", "two"}}}}}});
  EXPECT_NEAR(Loss("--model m --data s.jsonl"), loss, 1e-6);
}

TEST_F(Chats, LongOnesAreLeftOutOrCut) {
  WriteLines("p.jsonl", {{{"prompt", "ab"}, {"completion", "cd"}}, {{"prompt", "abcdef"}, {"completion", "ghijkl"}}});
  EXPECT_NEAR(Loss("--model m --data p.jsonl --max-length 8"), LossOf({"ab⟦cd</s>⟧"}), 1e-6);
  EXPECT_NEAR(Loss("--model m --data p.jsonl --max-length 8 --truncate right"), LossOf({"ab⟦cd</s>⟧", "abcdef⟦gh⟧"}),
              1e-6);
  EXPECT_NEAR(Loss("--model m --data p.jsonl --max-length 8 --truncate left"), LossOf({"ab⟦cd</s>⟧", "f⟦ghijkl</s>⟧"}),
              1e-6);
  ExpectRefused(Run("eval --model m --data p.jsonl --max-length 3"), "all 2 dialogues are longer than 3 tokens");
}

// logits = softmax(mask) · embedding[ids] · head: each position reads the mean of those that its mask lets it see.
// `positions`: so many tokens get a vector of their position after the product that mixes tokens.
void SaveMaskedDecoder(const std::string& path, int64_t positions = 0) {
  Message dims;
  for (const int extent : {0, 1, 0, 0})
    dims.Sub(1, extent == 1 ? Message().Int(1, 1) : Message().Bytes(2, dims.text().empty() ? "batch" : "length"));
  Message graph = TokenGraph(kRows, kRows);
  graph.Sub(11, Message().Bytes(1, "attention_mask").Sub(2, Message().Sub(1, Message().Int(1, 1).Sub(2, dims))))
      .Sub(5, Message().Int(1, 1).Int(2, 7).Bytes(8, "one").Int(7, 1))
      .Sub(1, Node("Gather", {"embedding", "input_ids"}, "e"))
      .Sub(1, Node("Squeeze", {"attention_mask", "one"}, "bias"))
      .Sub(1, Node("Softmax", {"bias"}, "weights"))
      .Sub(1, Node("MatMul", {"weights", "e"}, positions > 0 ? "mixed" : "x"));
  if (positions > 0) {
    const std::vector<float> places = tiny::Uniform(positions * kWidth, 0.5f, 3);
    graph.Sub(5, Tensor("places", {static_cast<uint64_t>(positions), kWidth}, places))
        .Sub(5, Message().Int(1, 1).Int(2, 7).Bytes(8, "two").Int(7, 2))
        .Sub(5, Message().Int(1, 1).Int(2, 7).Bytes(8, "zero").Int(7, 0))
        .Sub(1, Node("Shape", {"input_ids"}, "shape"))
        .Sub(1, Node("Slice", {"shape", "one", "two"}, "count"))
        .Sub(1, Node("Slice", {"places", "zero", "count", "zero"}, "rows"))
        .Sub(1, Node("Add", {"mixed", "rows"}, "x"));
  }
  graph.Sub(1, Node("MatMul", {"x", "head"}, "logits"));
  SaveTokenModel(path, graph);
}

std::vector<Json> MakePrompts(int count) {
  std::vector<Json> rows;
  for (int i = 0; i < count; ++i)
    rows.push_back({{"prompt", std::string(kChars.substr(i, 2 + i % 4))}, {"completion", std::string(1 + i % 3, 'c')}});
  return rows;
}

TEST_F(Chats, PackedSamplesDoNotSeeEachOther) {
  WriteLines("p.jsonl", MakePrompts(9));
  SaveMaskedDecoder(Path("m/model.onnx"));
  const double loss = Loss("--model m --data p.jsonl --max-length 24");
  EXPECT_NEAR(Loss("--model m --data p.jsonl --max-length 24 --packing"), loss, 1e-6);
  const Outcome o = Run("--model m --data p.jsonl --max-length 24 --packing --epochs 1 --batch-size 1 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("packed into 3 rows of 24 tokens"));
}

// As onnxruntime-genai builds decoders: rotary angles by positions that GroupQueryAttention counts itself.
void SaveGroupedDecoder(const std::string& path) {
  constexpr uint64_t kLength = 32;
  std::vector<float> cos, sin;
  for (uint64_t p = 0; p < kLength; ++p) {
    for (const double rate : {1.0, 0.1}) {
      cos.push_back(static_cast<float>(std::cos(rate * static_cast<double>(p))));
      sin.push_back(static_cast<float>(std::sin(rate * static_cast<double>(p))));
    }
  }
  const auto attribute = [](const char* name, uint64_t value) {
    return Message().Bytes(1, name).Int(3, value).Int(20, 2);
  };
  const Message attention = Node("GroupQueryAttention", {"p", "", "", "", "", "keys", "total", "cos", "sin"}, "a")
                                .Bytes(7, "com.microsoft")
                                .Sub(5, attribute("num_heads", 2))
                                .Sub(5, attribute("kv_num_heads", 1))
                                .Sub(5, attribute("do_rotary", 1));
  Message graph = TokenGraph(kRows, kRows);
  graph.Sub(11, Int64Input("attention_mask", {-1, -1}))
      .Sub(5, Tensor("qkv", {kWidth, 16}, tiny::Uniform(kWidth * 16, 0.9f, 5)))
      .Sub(5, Tensor("cos", {kLength, 2}, cos))
      .Sub(5, Tensor("sin", {kLength, 2}, sin))
      .Sub(5, Message().Int(1, 1).Int(2, 7).Bytes(8, "one").Int(7, 1))
      .Sub(5, Message().Int(2, 6).Bytes(8, "total").Int(5, kLength))
      .Sub(1, Node("Gather", {"embedding", "input_ids"}, "e"))
      .Sub(1, Node("MatMul", {"e", "qkv"}, "p"))
      .Sub(1, Node("ReduceSum", {"attention_mask", "one"}, "count"))
      .Sub(1, Node("Sub", {"count", "one"}, "last"))
      .Sub(1, Node("Cast", {"last"}, "keys").Sub(5, attribute("to", 6)))
      .Sub(1, attention)
      .Sub(1, Node("Add", {"a", "e"}, "x"))
      .Sub(1, Node("MatMul", {"x", "head"}, "logits"));
  graph.Sub(12, Message().Bytes(1, "logits").Sub(2, Message().Sub(1, Message().Int(1, 1))));
  const Message opset = Message().Bytes(1, "").Int(2, 13), more = Message().Bytes(1, "com.microsoft").Int(2, 1);
  WriteAll(path, Message().Int(1, 7).Bytes(2, "tiny").Sub(7, graph).Sub(8, opset).Sub(8, more).text());
}

// The loss after updates of the same samples is the same, whatever rows and micro-batches they are in.
TEST_F(Chats, PackedTrainingEqualsThatOfSingleSamples) {
  WriteLines("p.jsonl", MakePrompts(9));
  SaveGroupedDecoder(Path("m/model.onnx"));
  const std::string eval = "--data p.jsonl --max-length 24";
  EXPECT_NEAR(Loss("--model m --packing " + eval), Loss("--model m " + eval), 1e-6);
  const std::string train = "--model m --quiet --epochs 3 --optimizer sgd --lr 0.5 " + eval;
  ASSERT_EQ(Run(train + " --batch-size 9 --packing off --out single").code, 0);
  ASSERT_EQ(Run(train + " --batch-size 3 --packing on --out packed").code, 0);
  ASSERT_EQ(Run(train + " --batch-size 3 --micro-batch-size 1 --out micro").code, 0) << "auto packs";
  EXPECT_THAT(ReadAll(Path("micro/config.flags")), HasSubstr("--packing=on"));
  const double single = Loss("--model single/model.onnx " + eval), before = Loss("--model m " + eval);
  EXPECT_LT(single, 0.95 * before);
  EXPECT_NEAR(Loss("--model packed/model.onnx " + eval), single, 1e-6);
  EXPECT_NEAR(Loss("--model micro/model.onnx " + eval), single, 1e-6);
}

TEST_F(Chats, PackingIsRefusedWhereTokensCombine) {
  WriteLines("p.jsonl", MakePrompts(9));
  Message graph = TokenGraph(kRows, kRows);
  graph.Sub(5, Message().Int(2, 7).Bytes(8, "one").Int(7, 1))
      .Sub(1, Node("Gather", {"embedding", "input_ids"}, "e"))
      .Sub(1, Node("CumSum", {"e", "one"}, "x"))
      .Sub(1, Node("MatMul", {"x", "head"}, "logits"));
  SaveTokenModel(Path("m/model.onnx"), graph);
  const std::string flags = "--model m --data p.jsonl --max-length 24 ";
  const std::string why = "[CumSum 'x_node'] combines the tokens of a row";
  ExpectRefused(Run("eval --packing " + flags), why);
  const Outcome o = Run(flags + "--epochs 1 --batch-size 1 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("a row for each dialogue: " + why));
}

TEST_F(Chats, PackingIsTriedOnTheModel) {
  WriteLines("p.jsonl", MakePrompts(9));
  SaveMaskedDecoder(Path("m/model.onnx"), /*positions=*/24);
  const std::string flags = "--model m --data p.jsonl --max-length 24 --packing ";
  ExpectRefused(Run("eval " + flags), "its positions do not begin again");
  ExpectRefused(Run(flags + "--batch-size 1 --epochs 1 --out r"), "its positions do not begin again");
}

TEST_F(Chats, TrainAndStayTheSameAfterwards) {
  std::vector<Json> rows;
  for (int i = 0; i < 24; ++i)
    rows.push_back(
        {{"messages", {MakeMessage("user", std::string(1 + i % 5, 'a')), MakeMessage("assistant", "abab")}}});
  WriteLines("c.jsonl", rows);
  const Outcome o = Run("--model m --data c.jsonl --eval-split 0.25 --epochs 20 --lr 0.1 --batch-size 6 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("⟦abab<|im_end|>⟧"));
  EXPECT_LT(Summary("r")["eval"]["loss"], 0.5 * Summary("r")["eval_before"]["loss"].get<double>());
  // The model is written with what it needs, alone and in a folder like the first one.
  const double loss = Loss("--model r/model.onnx --data c.jsonl");
  EXPECT_EQ(Loss("--model r/model --data c.jsonl"), loss);
  EXPECT_TRUE(Exists("r/model/tokenizer_config.json"));
  std::filesystem::rename(Path("m"), Path("moved"));
  EXPECT_EQ(Loss("--model r/model.onnx --data c.jsonl"), loss);
}

// The longest sample of the data to evaluate on may be shorter or longer than that of the data to train on.
TEST_F(Chats, EvaluateSamplesOfOtherLengths) {
  std::map<std::string, std::string> lengths = {{"short.jsonl", "ab"}, {"long.jsonl", std::string(20, 'b')}};
  for (const auto& [name, answer] : lengths)
    WriteLines(name, {{{"prompt", "a"}, {"completion", answer}}, {{"prompt", "ab"}, {"completion", "a"}}});
  const std::string flags = "--epochs 1 --batch-size 2 --quiet";
  for (const std::string data : {"short", "long"}) {
    const std::string other = data == "short" ? "long" : "short";
    const Outcome o =
        Run(StrCat("--model m --data ", data, ".jsonl --eval-data ", other, ".jsonl ", flags, " --out ", data));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NEAR(Summary(data)["eval_before"]["loss"], Loss(StrCat("--model m --data ", other, ".jsonl")), 1e-6);
  }
}

TEST_F(Chats, BadOnesAreNamed) {
  const auto refuses = [&](const Json& row, const std::string& part) {
    WriteLines("bad.jsonl", {{{"messages", {MakeMessage("user", "a"), MakeMessage("assistant", "b")}}}, row});
    ExpectRefused(Run("eval --model m --data bad.jsonl"), part);
  };
  refuses({{"messages", "text"}}, "row 2: column 'messages': is no list of messages");
  refuses({{"messages", {{{"content", "a"}}}}}, "row 2: column 'messages': a message has no role");
  refuses({{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}},
          "row 2: column 'messages': a message holds 'image': language models read text alone");
  WriteAll(Path("refusing.jinja"), "{{ raise_exception('no ' + messages[0].role) }}");
  ExpectRefused(Run("eval --model m --data bad.jsonl --chat-template refusing.jinja"),
                "error: bad.jsonl: row 1: the chat template: line 1: no user");
  WriteAll(Path("bad.jinja"), "{% for m in messages %}");
  ExpectRefused(Run("eval --model m --data bad.jsonl --chat-template bad.jinja"), "the chat template: line 1: ");
  ExpectRefused(Run("eval --model m --data bad.jsonl --chat-template nothing"),
                "--chat-template nothing: is no file, and no template (");
  ExpectRefused(Run("eval --model m --data bad.jsonl --prompt messages"), "--prompt: needs --completion");
  WriteAll(Path("m/tokenizer_config.json"), "{}");
  ExpectRefused(Run("eval --model m --data bad.jsonl"), "the tokenizer has no chat template");
  WriteAll(Path("d.csv"), "a,b\n1,2\n");
  ExpectRefused(Run("eval --model m --data d.csv --loss-on all"), "--loss-on: has no effect");
}

}  // namespace
}  // namespace onnxtrain
