// Encodes texts of which some bytes carry loss, such as the answers of a chat.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/chat/chat_template.h"
#include "frontend/data/text/token_rows.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// Encodes a text without adding special tokens. The tokens from the one with the first byte of a generated range to
// that with its last byte carry loss, as in Hugging Face's assistant masks.
absl::StatusOr<AnsweredSample> EncodeMarked(const Tokenizer& tokenizer, const RenderedChat& text,
                                            TokenizerScratch* scratch);

// Encodes a text. If its prompt has n tokens, those after the first n carry loss, as in TRL. The prompt is usually, but
// not necessarily, a prefix of the text. `special` adds the special tokens of a sample.
absl::StatusOr<AnsweredSample> EncodeAnswer(const Tokenizer& tokenizer, const std::string& prompt,
                                            const std::string& text, bool special, TokenizerScratch* scratch);

}  // namespace onnxtrain
