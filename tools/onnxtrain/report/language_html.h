// Shows results of language models as HTML: losses of tokens, and texts.
#pragma once

#include <string>
#include <vector>

#include "frontend/data/text/token_text.h"
#include "optim/loop/evaluate.h"
#include "optim/record/quality.h"
#include "optim/record/sample_answers.h"

namespace onnxtrain::cli {

// The tokens of a run's text.
struct ReportTokens {
  TokenText text;
  std::vector<int64_t> end;  // tokens that end answers
};

// The kinds that tokens are counted by.
enum class TokenKind : uint8_t {
  kEnd,
  kSpecial,
  kSpace,
  kNumber,
  kPunctuation,
  kWord,
  kWordPart,
  kCharacterPart,
};
TokenKind FindTokenKind(const ReportTokens& tokens, int64_t id);

// Returns tables of losses by kind of token, by position, and of the tokens that have most of the loss. `tokens`: null
// if the tokens have no names. `before`: with the initial weights; may be null.
std::string TokenLossesHtml(const TokenLosses* before, const TokenLosses& after, const ReportTokens* tokens);

// Shows the text of a sample, with its prompt in grey and the background of the other tokens by their loss.
std::string LossTextHtml(const Dataset& data, const SampleResult& result, const TokenText& tokens);

// Shows the last answers beside their references, and how the first prompt's answer has changed.
std::string AnswersHtml(const std::vector<SampleAnswer>& answers);

}  // namespace onnxtrain::cli
