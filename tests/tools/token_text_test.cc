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

}  // namespace
}  // namespace onnxtrain::cli
