// Encodes texts of which some bytes carry loss, such as the answers of a chat.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/chat/chat_template.h"
#include "frontend/data/text/token_rows.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// Encodes a text without the template's special tokens. A token carries loss if it lies between the token of the first
// byte of a generated range and that of its last byte, as in Hugging Face's assistant masks.
absl::StatusOr<AnsweredSample> EncodeMarked(const Tokenizer& tokenizer, const RenderedChat& text,
                                            TokenizerScratch* scratch);

// Encodes a whole text, of which the tokens carry loss that come after as many as its prompt has, as TRL does. The
// prompt is usually, but not necessarily, the beginning of the text. `special`: with the special tokens of a sample.
absl::StatusOr<AnsweredSample> EncodeAnswer(const Tokenizer& tokenizer, const std::string& prompt,
                                            const std::string& text, bool special, TokenizerScratch* scratch);

}  // namespace onnxtrain
