// Tokens of every kind of vocabulary become the text that they were made of.
#include "frontend/data/text/token_text.h"

#include <gtest/gtest.h>

#include "tests/tools/scratch.h"

namespace onnxtrain::cli {
namespace {

class TokenTextTest : public Scratch {
 protected:
  static std::string Join(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
    std::vector<int64_t> ids;
    for (const std::string& token : tokens) ids.push_back(tokenizer.FindToken(token).value_or(-1));
    return TokenText(tokenizer).Join(ids);
  }
};

TEST_F(TokenTextTest, Characters) {
  const auto tokenizer = MakeCharTokenizer({U'a', U'b', U' ', U'\n', U'é'}, false);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(Join(**tokenizer, {"a", " ", "b", "é", "\n", "b"}), "a bé\nb");
  EXPECT_EQ(TokenText(**tokenizer).VisibleNames(), (std::vector<std::string>{"↵", "␣", "a", "b", "é"}));
}

TEST_F(TokenTextTest, WordPieces) {
  WriteAll(Path("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\nthe\n");
  const auto tokenizer = LoadTokenizer(Path("vocab.txt"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(Join(**tokenizer, {"play", "##ing", "the"}), "playing the");
  EXPECT_EQ(TokenText(**tokenizer).Join(std::vector<int64_t>{2, 7, 99}), "[CLS] the ");  // 99: not in the vocabulary
}

TEST_F(TokenTextTest, Bytes) {
  std::string vocabulary;
  const char* const tokens[] = {"Ġ", "a", "b", "Ã", "©", "Ċ", "Ġa"};
  for (size_t i = 0; i < std::size(tokens); ++i)
    vocabulary += (i == 0 ? "\"" : ",\"") + std::string(tokens[i]) + "\":" + std::to_string(i);
  WriteAll(Path("vocab.json"), "{" + vocabulary + "}");
  WriteAll(Path("merges.txt"), "#version: 0.2\nĠ a\n");
  const auto tokenizer = LoadTokenizer(Path("vocab.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(TokenText(**tokenizer).Join(std::vector<int64_t>{2, 6, 5, 3, 4}), "b a\né");
}

// A field of a protocol buffer that holds bytes.
std::string Field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}

// A piece of a SentencePiece model, of score 0. Kinds: 1 normal, 2 unknown, 3 control, 6 byte.
std::string Piece(const std::string& text, char kind) {
  return Field(1, Field(1, text) + std::string("\x15\0\0\0\0\x18", 6) + kind);
}

// The binary file of SentencePiece names its tokens.
TEST_F(TokenTextTest, SentencePieceModels) {
  const std::string unigram = "\x18\x01", blank = "▁";
  WriteAll(Path("s.model"), Piece("<unk>", 2) + Piece("<s>", 3) + Piece("</s>", 3) + Piece(blank + "a", 1) +
                                Piece("b", 1) + Piece(blank, 1) + Field(2, unigram) + Field(3, Field(1, "identity")));
  const auto tokenizer = LoadTokenizer(Path("s.model"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(TokenText(**tokenizer).Join(std::vector<int64_t>{4, 3, 4, 5, 2}), "b ab </s>");
  EXPECT_EQ(TokenText(**tokenizer).VisibleNames(), (std::vector<std::string>{"<unk>", "<s>", "</s>", "␣a", "b", "␣"}));
}

}  // namespace
}  // namespace onnxtrain::cli
