#include "frontend/data/chat/chat_tokens.h"

#include <algorithm>
#include <span>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Finds the tokens of one part of a text by encoding its beginnings.
class PartTokens {
 public:
  PartTokens(const Tokenizer& tokenizer, const TextPart& part, std::span<const TokenId> ids, TokenizerScratch* scratch)
      : tokenizer_(tokenizer), part_(part), ids_(ids), scratch_(scratch) {}

  // Returns the token that holds the byte after an end of a character.
  size_t FindBehind(size_t byte) { return byte == 0 ? 0 : Compare(byte).first; }
  // Returns the token that holds the byte before an end of a character.
  size_t FindBefore(size_t byte) {
    if (byte == part_.text.size()) return ids_.size() - 1;
    const auto [token, begins] = Compare(byte);
    return begins && token > 0 ? token - 1 : token;
  }

 private:
  // Returns the first token that the text up to `byte` lacks, and whether a token begins there: then the text has
  // exactly the tokens before it.
  std::pair<size_t, bool> Compare(size_t byte) {
    if (part_.added != kNoToken) return {0, false};
    before_.clear();
    tokenizer_.EncodePart({.text = part_.text.substr(0, byte), .first = part_.first}, scratch_, &before_);
    const auto [own, other] = std::ranges::mismatch(ids_, before_);
    return {std::min<size_t>(own - ids_.begin(), ids_.size() - 1), other == before_.end()};
  }

  const Tokenizer& tokenizer_;
  const TextPart& part_;
  std::span<const TokenId> ids_;
  TokenizerScratch* scratch_;
  std::vector<TokenId> before_;
};

// Marks the tokens of the part, from `first` on, that a range covers. `begin` is the part's byte offset in the text.
void MarkPart(const TextRange& range, size_t begin, const TextPart& part, size_t first, PartTokens* tokens,
              AnsweredSample* sample) {
  const size_t end = begin + part.text.size();
  if (range.begin >= end || range.end <= begin || range.begin >= range.end || first == sample->ids.size()) return;
  const size_t from = std::max(range.begin, begin) - begin, to = std::min(range.end, end) - begin;
  const size_t last = tokens->FindBefore(to);
  for (size_t k = tokens->FindBehind(from); k <= last; ++k) sample->trained[first + k] = 1;
}

absl::StatusOr<std::vector<TokenId>> EncodeWhole(const Tokenizer& tokenizer, const std::string& text, bool special,
                                                 TokenizerScratch* scratch) {
  std::vector<TokenId> ids;
  RETURN_IF_ERROR(tokenizer.Encode(text, scratch, &ids));
  if (!special) return ids;
  EncodedSample sample;
  RETURN_IF_ERROR(FillTemplate(tokenizer.single(), std::move(ids), {}, 0, &sample));
  return std::move(sample.ids);
}

}  // namespace

absl::StatusOr<AnsweredSample> EncodeMarked(const Tokenizer& tokenizer, const RenderedChat& text,
                                            TokenizerScratch* scratch) {
  AnsweredSample sample;
  ASSIGN_OR_RETURN(const std::vector<TextPart> parts, tokenizer.Cut(text.text, text.text.size()));
  for (const TextPart& part : parts) {
    const size_t first = sample.ids.size();
    tokenizer.EncodePart(part, scratch, &sample.ids);
    sample.trained.resize(sample.ids.size());
    const std::vector<TokenId> own(sample.ids.begin() + static_cast<ptrdiff_t>(first), sample.ids.end());
    PartTokens tokens(tokenizer, part, own, scratch);
    const auto begin = static_cast<size_t>(part.text.data() - text.text.data());
    for (const TextRange& range : text.generated) MarkPart(range, begin, part, first, &tokens, &sample);
  }
  RETURN_IF_ERROR(tokenizer.CheckKnown(sample.ids));
  return sample;
}

absl::StatusOr<AnsweredSample> EncodeAnswer(const Tokenizer& tokenizer, const std::string& prompt,
                                            const std::string& text, bool special, TokenizerScratch* scratch) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> before, EncodeWhole(tokenizer, prompt, special, scratch));
  AnsweredSample sample;
  ASSIGN_OR_RETURN(sample.ids, EncodeWhole(tokenizer, text, special, scratch));
  sample.trained.resize(sample.ids.size());
  for (size_t k = before.size(); k < sample.ids.size(); ++k) sample.trained[k] = 1;
  return sample;
}

}  // namespace onnxtrain
