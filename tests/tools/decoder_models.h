// Small decoders of text, with and without a cache of keys and values, in folders with a tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "frontend/base/strings.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain::decoders {

using Json = nlohmann::json;

inline constexpr std::string_view kChars = "abcdefghijklmnopqrstuvwxyz .";
inline constexpr int64_t kWidth = 8, kHeads = 2;
inline const auto kRows = static_cast<int64_t>(kChars.size()) + 2;  // and two special tokens

inline tiny::Weight Ints(const std::string& name, const std::vector<int64_t>& values, bool scalar = false) {
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return {.name = name,
          .shape = scalar ? std::vector<int64_t>{} : std::vector<int64_t>{std::ssize(values)},
          .values = {},
          .type = 7,
          .bytes = bytes};
}

inline tiny::Model Decoder() {
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

inline void AddCache(const std::vector<int64_t>& shape, tiny::Model* m) {
  for (const std::string part : {"key", "value"}) {
    m->more_inputs["past_key_values.0." + part] = shape;
    m->outputs.push_back("present.0." + part);
  }
}

// One layer of attention over what the mask counts, with positions from the mask: exporters of PyTorch append new keys
// to the cache.
inline tiny::Model Appending(bool cached) {
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
inline tiny::Model Ordering() {
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

class DecoderScratch : public RunScratch {
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
  // A chat of one question and its answer.
  void WriteChat(const std::string& file, const std::string& question, const std::string& answer) {
    const Json messages = {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}};
    WriteAll(Path(file), Json({{"messages", messages}}).dump() + "\n");
  }
};

// The messages of a user are their text and a dot, answers end with </s>.
inline Json DotTemplate() {
  return {
      {"eos_token", "</s>"},
      {"chat_template",
       "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% else %}.{% endif %}{% endfor %}"}};
}

}  // namespace onnxtrain::decoders
