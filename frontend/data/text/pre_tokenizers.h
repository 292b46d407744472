// Pre-tokenizers of tokenizer.json. Byte-level pieces stay bytes: the vocabulary is mapped to bytes instead.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

// What becomes of the matches of a pattern that splits text.
enum class SplitBehavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

PreTokenizerPtr MakeBertPreTokenizer();  // blanks are dropped, punctuation stands alone
PreTokenizerPtr MakeWhitespaceSplit();
PreTokenizerPtr MakeWhitespaceWords();  // \w+|[^\w\s]+
PreTokenizerPtr MakePunctuation(SplitBehavior behavior);
PreTokenizerPtr MakeDigits(bool individual);
PreTokenizerPtr MakeCharDelimiter(char32_t delimiter);
PreTokenizerPtr MakeChars();  // every character
// GPT-2's pieces; `prefix_space`: a blank is prepended where the text does not begin with one; without `use_regex` the
// text is one piece.
PreTokenizerPtr MakeByteLevel(bool prefix_space, bool use_regex);
// Splits where the literal text occurs.
PreTokenizerPtr MakeSplit(const std::string& text, SplitBehavior behavior, bool invert);
// The expressions of GPT-2, cl100k, Llama-3 and Qwen are hand-coded; all others run through ICU. Fails on a broken one.
absl::StatusOr<PreTokenizerPtr> MakeRegexSplit(const std::string& expression, SplitBehavior behavior, bool invert);

enum class PrependScheme : uint8_t { kNever, kFirst, kAlways };
// Replaces blanks by `replacement`, which is prepended as the scheme says and begins pieces where `split` is set.
PreTokenizerPtr MakeMetaspace(std::string replacement, PrependScheme scheme, bool split);
PreTokenizerPtr MakePreTokenizerSequence(std::vector<PreTokenizerPtr> steps);

}  // namespace onnxtrain
