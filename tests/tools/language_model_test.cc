// Language models from text files and token shards: training, evaluation, resumption, bad input.
#include <nlohmann/json.hpp>

#include <cmath>

#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"
#include "tests/tools/token_models.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// Letters that follow each other in a cycle, with a line end after each: 5 characters.
std::string Cycle(int64_t lines) {
  std::string text;
  for (int64_t i = 0; i < lines; ++i) text += "abcd\n";
  return text;
}

// A tokenizer of letters that has an end-of-text token.
constexpr char kLetters[] = R"({"added_tokens": [{"id": 5, "content": "<|endoftext|>", "special": true,
  "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
  "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"\n": 0, "a": 1, "b": 2, "c": 3, "d": 4}},
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?s)."}, "behavior": "Isolated", "invert": false}})";

class LanguageModels : public Scratch {
 protected:
  Outcome Train(const std::string& flags, const std::string& out = "r") {
    const bool has_length = flags.find("--max-length") != std::string::npos;
    return Run(StrCat("--model m.onnx --seed 3 --overwrite --quiet --out ", out, has_length ? " " : " --max-length 10 ",
                      flags));
  }
  Json Summary(const std::string& out = "r") const { return Json::parse(ReadAll(Path(out + "/summary.json"))); }
  void Refuses(const std::string& flags, const std::string& part) { ExpectRefused(Train(flags), part); }
};

// A field of a protocol buffer that holds bytes.
std::string Field(int number, const std::string& bytes) {
  return StrCat(std::string(1, static_cast<char>(number << 3 | 2)), std::string(1, static_cast<char>(bytes.size())),
                bytes);
}

// A piece of a SentencePiece model, of score 0. Kinds: 1 normal, 2 unknown, 3 control.
std::string Piece(const std::string& text, char kind) {
  return Field(1, Field(1, text) + std::string("\x15\0\0\0\0\x18", 6) + kind);
}

// The program has two versions of protobuf: that of the importer, and an old one in libsentencepiece.
TEST_F(LanguageModels, TokenizesWithSentencePiece) {
  const std::string unigram = "\x18\x01", word_begin = "\xe2\x96\x81";
  WriteAll(Path("s.model"), StrCat(Piece("<unk>", 2), Piece("<s>", 3), Piece("</s>", 3), Piece(word_begin + "a", 1),
                                   Piece("b", 1), Field(2, unigram), Field(3, Field(1, "identity"))));
  WriteAll(Path("t.txt"), "abb a");
  const Outcome run = Run("tokenize --quiet --data t.txt --tokenizer s.model --out s.bin");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(ReadAll(Path("s.bin")), std::string("\1\0\3\0\4\0\4\0\3\0\2\0", 12));
}

TEST_F(LanguageModels, LearnsCharactersAndEvaluates) {
  SaveDecoder(Path("m.onnx"), 5);
  WriteAll(Path("t.txt"), Cycle(400));
  const Outcome run = Train("--data t.txt --eval-split last:0.1 --epochs 12 --lr 0.03 --batch-size 8");
  ASSERT_EQ(run.code, 0) << run.err;
  const Json summary = Summary();
  EXPECT_GT(summary["eval_before"]["loss"].get<double>(), 1);
  EXPECT_LT(summary["eval"]["loss"].get<double>(), 0.2) << "the next letter follows from the last one";
  EXPECT_NEAR(summary["eval"]["perplexity"].get<double>(), std::exp(summary["eval"]["loss"].get<double>()), 1e-4);
  EXPECT_NEAR(summary["eval"]["bits_per_character"].get<double>(), summary["eval"]["loss"].get<double>() / std::log(2),
              1e-4);
  EXPECT_NEAR(summary["tokens_per_second"].get<double>(), 10 * summary["samples_per_second"].get<double>(), 1e-6);
  EXPECT_EQ(summary["eval"]["samples"], 20);
  // Evaluation has the tokenizer and the length of the training.
  const Outcome eval = Run("eval --json --model r/model.onnx --data t.txt");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_LT(Json::parse(eval.out)["loss"].get<double>(), 0.2);
  EXPECT_EQ(Json::parse(eval.out)["samples"], 200);
  EXPECT_NE(Run("eval --model r/model.onnx --data t.txt").out.find("\nbits_per_character 0."), std::string::npos);
  WriteAll(Path("odd.txt"), "abcd\nz");
  ExpectRefused(Run("eval --model r/model.onnx --data odd.txt"),
                "odd.txt: token 5 of the text is not in the vocabulary");
}

TEST_F(LanguageModels, AResumedRunIsTheWholeRun) {
  SaveDecoder(Path("m.onnx"), 5);
  WriteAll(Path("t.txt"), Cycle(200));
  const std::string flags = "--data t.txt --eval-split 0.1 --batch-size 4 ";
  ASSERT_EQ(Train(flags + "--epochs 2", "whole").code, 0);
  ASSERT_EQ(Train(flags + "--epochs 2 --max-steps 31", "part").code, 0);
  const Outcome resumed = Run("--resume part --epochs 2 --max-steps 1000 --quiet");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Summary("part")["steps"], Summary("whole")["steps"]);
  EXPECT_EQ(ReadAll(Path("part/model.onnx")), ReadAll(Path("whole/model.onnx")));
}

TEST_F(LanguageModels, ShardsAreTheTextThatTheyWereMadeOf) {
  SaveDecoder(Path("m.onnx"), 5);
  WriteAll(Path("t.txt"), Cycle(60));
  std::string narrow, wide;
  for (const char c : Cycle(60)) {
    const auto id = static_cast<char>(c == '\n' ? 0 : c - 'a' + 1);
    narrow += {id, '\0'};
    wide += {id, '\0', '\0', '\0'};
  }
  WriteAll(Path("t.bin"), narrow);
  WriteAll(Path("w.bin"), wide);
  WriteAll(Path("w.bin.json"),
           R"({"dtype": "uint32", "tokens": 300, "vocabulary": 5, "max_id": 4, "documents": 1, "bytes": 600})");
  const auto train = [&](const std::string& flags, const std::string& out) {
    const char* const split = flags.find("--eval-data") == std::string::npos ? " --eval-split last:0.2" : "";
    const Outcome run = Train(flags + split + " --epochs 1 --batch-size 4", out);
    ASSERT_EQ(run.code, 0) << run.err;
  };
  train("--data t.txt", "text");
  train("--data t.bin", "narrow");
  train("--data w.bin", "wide");
  train("--data u32:w.bin", "named");
  // A single array of a .npy file.
  const auto npy = [](const std::string& type, const std::string& tokens) {
    std::string header = StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (300,), }");
    header.resize(117, ' ');
    return std::string("\x93NUMPY\1\0\x76\0", 10) + header + "\n" + tokens;
  };
  WriteAll(Path("n.npy"), npy("<u2", narrow));
  WriteAll(Path("w.npy"), npy("<u4", wide));
  train("--data n.npy", "npy16");
  train("--data w.npy", "npy32");
  for (const char* out : {"narrow", "wide", "named", "npy16", "npy32"})
    EXPECT_EQ(ReadAll(Path(StrCat(out, "/model.onnx"))), ReadAll(Path("text/model.onnx"))) << out;
  train("--data t.txt --eval-data t.bin", "mixed");
  EXPECT_EQ(Summary("mixed")["eval"]["samples"], 30);
  const Json eval = Summary("wide")["eval"];
  EXPECT_NEAR(eval["bits_per_byte"].get<double>(), eval["loss"].get<double>() / std::log(2) / 2, 1e-5);
  Refuses("--data t.bin --eval-data t.txt", "--text: needs a --tokenizer");
  WriteAll(Path("odd.bin"), narrow + "x");
  Refuses("--data odd.bin", "odd.bin: 601 bytes are no whole number of uint16 tokens");
  Refuses("--data u16:w.bin --tokenizer none.json", "--tokenizer: none.json");
}

TEST_F(LanguageModels, TokensKeepTheTokenizerBesideTheModel) {
  SaveDecoder(Path("m.onnx"), 6);
  WriteAll(Path("tokenizer.json"), kLetters);
  std::string tokens;
  for (int i = 0; i < 60; ++i) tokens += std::string{static_cast<char>(1 + i % 4), '\0'};
  WriteAll(Path("t.bin"), tokens);
  const Outcome run = Train("--data t.bin --epochs 1");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(ReadAll(Path("r/tokenizer/tokenizer.json")), kLetters);
  WriteAll(Path("t.txt"), Cycle(60));
  const Outcome eval = Run("eval --model r/model.onnx --data t.txt --max-length 10");
  EXPECT_EQ(eval.code, 0) << eval.err;
}

TEST_F(LanguageModels, AVocabularyMustFitTheTable) {
  SaveDecoder(Path("m.onnx"), 4);
  WriteAll(Path("t.txt"), Cycle(60));
  WriteAll(Path("tokenizer.json"), kLetters);
  Refuses("--data t.txt --tokenizer tokenizer.json", "has 6 tokens, but the model's embedding table has 4 rows");
  Refuses("--data t.txt --tokenizer chars", "has 5 tokens, but the model's embedding table has 4 rows");
  WriteAll(Path("t.bin"), std::string("\1\0\2\0\7\0\1\0", 8));
  Refuses("--data t.bin", "token id 7 is out of range: the model's embedding table has 4 rows");
  SaveDecoder(Path("m.onnx"), 4000);
  std::filesystem::remove(Path("tokenizer.json"));  // the one beside the model would be taken
  Refuses("--data t.txt", "needs a --tokenizer");
}

TEST_F(LanguageModels, RefusesModelsThatSeeTheirLabels) {
  SaveEncoder(Path("m.onnx"), 5);
  WriteAll(Path("t.txt"), Cycle(60));
  Refuses("--data t.txt", "output 'logits' sees the tokens behind each position");
  // With labels of the data the same model trains.
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "{\"ids\": [1, 2, 0, 4], \"labels\": [-100, -100, 3, -100]}\n";
  WriteAll(Path("masked.jsonl"), rows);
  const Outcome masked = Run("--model m.onnx --data masked.jsonl --input input_ids=ids --label labels --max-steps 5");
  EXPECT_EQ(masked.code, 0) << masked.err;
  SaveDecoder(Path("m.onnx"), 5);
  const Outcome causal = Train("--data t.txt --max-steps 2");
  EXPECT_EQ(causal.code, 0) << causal.err;
}

TEST_F(LanguageModels, DocumentsAreKeptApart) {
  SaveDecoder(Path("m.onnx"), 6, true);
  WriteAll(Path("lines.txt"), Cycle(50));
  WriteAll(Path("tokenizer.json"), kLetters);
  std::string rows;
  for (int i = 0; i < 50; ++i)
    rows += StrCat("{\"text\": \"abcd\", \"part\": \"", i % 5 == 0 ? "test" : "train", "\"}\n");
  WriteAll(Path("d.jsonl"), rows);
  const std::string flags = "--tokenizer tokenizer.json --epochs 30 --lr 0.03 --batch-size 4 ";
  ASSERT_EQ(Train(flags + "--data lines:lines.txt --eval-split 0.2").code, 0);
  // Each of "abcd" predicts the next letter and the end, the end predicts nothing: no loss is left.
  EXPECT_LT(Summary()["eval"]["loss"].get<double>(), 0.1);
  const Outcome table = Train(flags + "--data d.jsonl --text text --eval-split part");
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_LT(Summary()["eval"]["loss"].get<double>(), 0.1);
  EXPECT_EQ(Summary()["eval"]["samples"], 5) << "10 documents of 5 tokens";
  Refuses(flags + "--data lines:lines.txt --max-length 17", "the model takes at most 16 tokens");
}

}  // namespace
}  // namespace onnxtrain
