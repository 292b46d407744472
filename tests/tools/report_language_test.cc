// The part of report.html about language models.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/tools/decoder_models.h"
#include "tools/onnxtrain/report/language_html.h"

namespace onnxtrain::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace decoders;

class ReportLanguage : public DecoderScratch {
 protected:
  // Makes tokens of a byte-level vocabulary.
  ReportTokens Tokens(const std::vector<std::string>& names) {
    Json vocabulary = Json::object();
    for (size_t i = 0; i < names.size(); ++i) vocabulary[names[i]] = i;
    WriteAll(Path("vocab.json"), vocabulary.dump());
    WriteAll(Path("merges.txt"), "#version: 0.2\n");
    const auto tokenizer = LoadTokenizer(Path("vocab.json"));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return {.text = TokenText(**tokenizer), .end = {0}};
  }
};

TEST_F(ReportLanguage, KindsOfTokens) {
  const std::vector<std::string> names = {"<|im_end|>", "<|user|>", "Ġ",    "Ċ",   "Ġ42", "7",
                                          "Ġ(",         ",",        "Ġthe", "ing", "Ã",   "<"};
  const std::vector<TokenKind> kinds = {TokenKind::kEnd,         TokenKind::kSpecial,       TokenKind::kSpace,
                                        TokenKind::kSpace,       TokenKind::kNumber,        TokenKind::kNumber,
                                        TokenKind::kPunctuation, TokenKind::kPunctuation,   TokenKind::kWord,
                                        TokenKind::kWordPart,    TokenKind::kCharacterPart, TokenKind::kPunctuation};
  const ReportTokens tokens = Tokens(names);
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(FindTokenKind(tokens, static_cast<int64_t>(i)), kinds[i]) << names[i];
}

TEST_F(ReportLanguage, TablesOfLosses) {
  const ReportTokens tokens = Tokens({"</s>", "Ġ", "Ġthe", "Ċ"});
  TokenLosses after;
  after.by_token = {{0, {1, 1, 0.5}}, {2, {3, 1, 6}}, {3, {1, 0, 1.5}}};
  after.by_position = {{}, {1, 1, 2}, {}, {}, {2, 0, 5}, {2, 1, 1}};
  after.first = {1, 0, 2};
  const std::string html = TokenLossesHtml(nullptr, after, &tokens);
  EXPECT_THAT(
      html,
      HasSubstr("<td>beginning of an answer</td><td>1</td><td>25.0 %</td><td>–</td><td>2.000</td><td>0.0 %</td>"));
  EXPECT_THAT(html,
              HasSubstr("<td>end of an answer</td><td>1</td><td>6.2 %</td><td>–</td><td>0.500</td><td>100.0 %</td>"));
  EXPECT_THAT(
      html, HasSubstr("<td>word, its beginning</td><td>3</td><td>75.0 %</td><td>–</td><td>2.000</td><td>33.3 %</td>"));
  EXPECT_THAT(html, HasSubstr("<td>␣the</td><td>3</td>"));
  EXPECT_THAT(html, HasSubstr("<td>↵</td><td>1</td>"));
  EXPECT_THAT(html, HasSubstr("<td>1–3</td><td>1</td><td>25.0 %</td>"));
  EXPECT_THAT(html, HasSubstr("<td>4–15</td><td>4</td><td>75.0 %</td>"));
  EXPECT_THAT(TokenLossesHtml(nullptr, after, nullptr), Not(HasSubstr("Loss by kind")));
}

TEST_F(ReportLanguage, OfAChat) {
  Make("m", Appending(true), DotTemplate());
  WriteChat("c.jsonl", "ab", "xyz");
  const Outcome o =
      Run("--model m --data c.jsonl --eval-data c.jsonl --epochs 2 --batch-size 1 --threads 1 --quiet --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string html = ReadAll(Path("r/report.html"));
  EXPECT_THAT(html, HasSubstr("1 samples of the evaluation data, at equal distances, with 4 labels"));
  EXPECT_THAT(html, Not(HasSubstr("<th>class</th>")));
  EXPECT_THAT(html, HasSubstr("<td>beginning of an answer</td><td>1</td>"));
  EXPECT_THAT(html, HasSubstr("<td>end of an answer</td><td>1</td>"));
  EXPECT_THAT(html, HasSubstr("<td>1–3</td><td>1</td>"));
  EXPECT_THAT(html, HasSubstr("<td>4–15</td><td>3</td>"));
  EXPECT_THAT(html, HasSubstr("<span class=\"soft\">ab.</span><span title=\"loss "));
}

}  // namespace
}  // namespace onnxtrain::cli
