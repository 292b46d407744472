#include "frontend/data/text/tokenizer.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

std::vector<AddedToken> SelectAdded(const std::vector<AddedToken>& added, bool normalized,
                                    const Normalizer* normalizer) {
  std::vector<AddedToken> selected;
  for (AddedToken token : added) {
    if (token.normalized != normalized) continue;
    if (normalized && normalizer != nullptr) {
      std::string content;
      normalizer->Apply(token.content, &content);
      token.content = std::move(content);
    }
    selected.push_back(std::move(token));
  }
  return selected;
}

TokenId FindPad(const Tokenizer& tokenizer, const TokenizerParts& parts) {
  if (parts.pad) return *parts.pad;
  for (const char* name :
       {"[PAD]", "<pad>", "<|pad|>", "<PAD>", "<|finetune_right_pad_id|>", "<|endoftext|>", "</s>"}) {
    if (const auto id = tokenizer.FindToken(name)) return *id;
  }
  return 0;
}

int64_t CountIds(const TokenizerParts& parts) {
  TokenId max = parts.model->max_id();
  for (const AddedToken& token : parts.added) max = std::max(max, token.id);
  return int64_t{max} + 1;
}

// Other ASCII spaces are control characters, which cleaning removes.
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      raw_added_(SelectAdded(parts_.added, false, nullptr)),
      normalized_added_(SelectAdded(parts_.added, true, parts_.normalizer.get())),
      by_words_(parts_.pre_tokenizer != nullptr && parts_.pre_tokenizer->DropsBlanks() && normalized_added_.empty() &&
                (parts_.normalizer == nullptr || parts_.normalizer->KeepsBlanks())),
      pad_(FindPad(*this, parts_)),
      id_count_(CountIds(parts_)) {}

std::optional<TokenId> Tokenizer::FindToken(std::string_view token) const {
  const auto added = std::ranges::find(parts_.added, token, &AddedToken::content);
  return added != parts_.added.end() ? std::optional(added->id) : parts_.model->Find(token);
}

absl::Status Tokenizer::Encode(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const {
  if (const size_t invalid = FindInvalidUtf8(text); invalid != std::string_view::npos)
    return Invalid("byte ", invalid, " of the text is not UTF-8");
  const size_t before = ids->size();
  raw_added_.Split(
      text, [&](std::string_view part) { EncodeText(part, part.data() == text.data(), scratch, ids); },
      [&](TokenId id) { ids->push_back(id); });
  if (parts_.model->KnowsAll()) return absl::OkStatus();
  const auto unknown = std::find(ids->begin() + static_cast<std::ptrdiff_t>(before), ids->end(), kNoToken);
  if (unknown == ids->end()) return absl::OkStatus();
  return Invalid("token ", unknown - ids->begin() - static_cast<std::ptrdiff_t>(before),
                 " of the text is not in the vocabulary, which has no unknown token");
}

void Tokenizer::EncodeText(std::string_view text, bool first, TokenizerScratch* scratch,
                           std::vector<TokenId>* ids) const {
  if (by_words_) return EncodeWords(text, scratch, ids);
  if (parts_.normalizer == nullptr) return EncodeNormalized(text, first, scratch, ids);
  scratch->normalized.clear();
  parts_.normalizer->Apply(text, &scratch->normalized);
  EncodeNormalized(scratch->normalized, first, scratch, ids);
}

void Tokenizer::EncodeNormalized(std::string_view text, bool first, TokenizerScratch* scratch,
                                 std::vector<TokenId>* ids) const {
  if (normalized_added_.empty()) return EncodePieces(text, first, scratch, ids);
  normalized_added_.Split(
      text, [&](std::string_view part) { EncodePieces(part, first && part.data() == text.data(), scratch, ids); },
      [&](TokenId id) { ids->push_back(id); });
}

void Tokenizer::EncodePieces(std::string_view text, bool first, TokenizerScratch* scratch,
                             std::vector<TokenId>* ids) const {
  if (text.empty()) return;
  const auto encode = [&](std::string_view piece) {
    if (scratch->cache.Append(piece, ids)) return;
    const size_t before = ids->size();
    parts_.model->Tokenize(piece, ids);
    scratch->cache.Add(piece, std::span(*ids).subspan(before));
  };
  if (parts_.pre_tokenizer == nullptr) return encode(text);
  parts_.pre_tokenizer->Split(text, first, encode);
}

// Normalizes and splits only words that the cache does not know.
void Tokenizer::EncodeWords(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const {
  const auto encode = [&](std::string_view word) {
    if (scratch->cache.Append(word, ids)) return;
    const size_t before = ids->size();
    scratch->normalized.clear();
    if (parts_.normalizer != nullptr) parts_.normalizer->Apply(word, &scratch->normalized);
    const std::string_view normalized = parts_.normalizer != nullptr ? scratch->normalized : word;
    parts_.pre_tokenizer->Split(normalized, true, [&](std::string_view piece) { parts_.model->Tokenize(piece, ids); });
    scratch->cache.Add(word, std::span(*ids).subspan(before));
  };
  for (size_t at = 0; at < text.size();) {
    if (IsBlank(text[at])) {
      ++at;
      continue;
    }
    size_t end = at + 1;
    while (end < text.size() && !IsBlank(text[end])) ++end;
    encode(text.substr(at, end - at));
    at = end;
  }
}

namespace {

// Shortens the longer text, then both to halves, until they have `room` tokens together.
void TruncateLongest(size_t room, std::vector<TokenId>* first, std::vector<TokenId>* second) {
  std::vector<TokenId>*shorter = first, *longer = second;
  if (shorter->size() > longer->size()) std::swap(shorter, longer);
  size_t a = shorter->size(), b = a > room ? a : std::max(a, room - a);
  if (a + b > room) {
    a = room / 2;
    b = a + room % 2;
  }
  shorter->resize(std::min(a, shorter->size()));
  longer->resize(std::min(b, longer->size()));
}

}  // namespace

absl::Status FillTemplate(const SampleTemplate& layout, std::vector<TokenId> first, std::vector<TokenId> second,
                          int64_t max_length, EncodedSample* sample) {
  size_t special = 0;
  for (const TemplatePart& part : layout) special += part.ids.size();
  *sample = {};
  const auto limit = static_cast<size_t>(max_length);
  if (max_length > 0 && special >= limit)
    return Invalid(max_length, " tokens are too few: ", special, " are special tokens");
  if (max_length > 0 && special + first.size() + second.size() > limit) {
    sample->truncated = true;
    TruncateLongest(limit - special, &first, &second);
  }
  for (const TemplatePart& part : layout) {
    const std::vector<TokenId>& ids = part.kind == TemplatePart::Kind::kFirst    ? first
                                      : part.kind == TemplatePart::Kind::kSecond ? second
                                                                                 : part.ids;
    sample->ids.insert(sample->ids.end(), ids.begin(), ids.end());
    sample->types.insert(sample->types.end(), ids.size(), part.type);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
