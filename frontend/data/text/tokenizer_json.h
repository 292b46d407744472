// Hugging Face's tokenizer.json.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// Fails, naming the part, on parts that are not known and on options that change ids and are not supported.
absl::StatusOr<TokenizerParts> ParseTokenizerJson(const std::string& text);

}  // namespace onnxtrain
