#include "frontend/data/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <span>

#include "frontend/base/status.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

size_t PackPair(unsigned char first, unsigned char second) { return size_t{first} << 8 | second; }

char32_t FirstChar(std::string_view text) {
  char32_t c;
  DecodeChar(text, &c);
  return c;
}

// Returns the offset of the last character before `end` > 0.
size_t LastCharBegin(std::string_view text, size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
  return end;
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && HasFlags(FirstChar(text.substr(LastCharBegin(text, begin))), kWord)) return false;
  return end == text.size() || !HasFlags(FirstChar(text.substr(end)), kWord);
}

size_t SkipSpacesLeft(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit && HasFlags(FirstChar(text.substr(LastCharBegin(text, begin))), kSpace))
    begin = LastCharBegin(text, begin);
  return begin;
}

size_t SkipSpacesRight(std::string_view text, size_t end) {
  while (end < text.size() && HasFlags(FirstChar(text.substr(end)), kSpace)) end += CharBytes(text[end]);
  return end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), by_first_(256) {
  std::erase_if(tokens_, [](const AddedToken& t) { return t.content.empty(); });
  const auto first = [](const AddedToken& t) { return static_cast<unsigned char>(t.content[0]); };
  std::ranges::stable_sort(tokens_, [&](const AddedToken& a, const AddedToken& b) {
    return first(a) != first(b) ? first(a) < first(b) : a.content.size() > b.content.size();
  });
  if (!tokens_.empty() && first(tokens_.front()) == first(tokens_.back())) only_first_ = tokens_[0].content[0];
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    auto& [begin, end] = by_first_[first(tokens_[i])];
    if (begin == end) begin = i;
    end = i + 1;
    const std::string& content = tokens_[i].content;
    for (int second = 0; second < 256; ++second) {
      if (content.size() == 1 || static_cast<unsigned char>(content[1]) == second)
        pairs_.set(PackPair(first(tokens_[i]), static_cast<unsigned char>(second)));
    }
  }
}

// Returns the next offset from `at` at which a token may begin; text.size() if there is none.
size_t AddedTokenFinder::FindCandidate(std::string_view text, size_t at) const {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (; at < text.size(); ++at) {
    if (only_first_.has_value()) at = std::min(text.find(*only_first_, at), text.size() - 1);
    const auto [begin, end] = by_first_[byte(at)];
    if (begin < end && (at + 1 == text.size() || pairs_.test(PackPair(byte(at), byte(at + 1))))) return at;
  }
  return text.size();
}

const AddedToken* AddedTokenFinder::FindAt(std::string_view text, size_t at) const {
  const auto [begin, end] = by_first_[static_cast<unsigned char>(text[at])];
  for (uint32_t i = begin; i < end; ++i) {
    if (text.substr(at).starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

void AddedTokenFinder::Split(std::string_view text, absl::FunctionRef<void(std::string_view)> text_between,
                             absl::FunctionRef<void(TokenId, std::string_view)> token) const {
  size_t done = 0;
  if (tokens_.empty()) return text.empty() ? void() : text_between(text);
  for (size_t at = FindCandidate(text, 0); at < text.size();) {
    const AddedToken* found = FindAt(text, at);
    const size_t end = at + (found != nullptr ? found->content.size() : 1);
    if (found != nullptr && (!found->single_word || StandsAlone(text, at, end))) {
      const size_t begin = found->left_strip ? SkipSpacesLeft(text, at, done) : at;
      if (done < begin) text_between(text.substr(done, begin - done));
      done = found->right_strip ? SkipSpacesRight(text, end) : end;
      token(found->id, text.substr(begin, done - begin));
    }
    at = FindCandidate(text, std::max(end, done));
  }
  if (done < text.size()) text_between(text.substr(done));
}

namespace {

std::vector<AddedToken> SelectAdded(const std::vector<AddedToken>& added, bool normalized,
                                    const Normalizer* normalizer) {
  std::vector<AddedToken> selected;
  for (AddedToken token : added) {
    if (token.normalized != normalized) continue;
    if (normalized && normalizer != nullptr) {
      std::string content;
      normalizer->Run(token.content, &content);
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

// Returns false for other ASCII spaces, which are control characters that cleaning removes.
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

size_t SkipBlanks(std::string_view text, size_t at) {
  while (at < text.size() && IsBlank(text[at])) ++at;
  return at;
}

size_t FindBlank(std::string_view text, size_t at) {
  while (at < text.size() && !IsBlank(text[at])) ++at;
  return at;
}

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// Returns the first space after a letter or digit from `bytes` on; text.size() if there is none.
size_t FindCut(std::string_view text, size_t bytes) {
  for (size_t at = std::max<size_t>(bytes, 1); (at = text.find(' ', at)) < text.size(); ++at) {
    if (IsLetterOrDigit(text[at - 1])) return at;
  }
  return text.size();
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      raw_added_(SelectAdded(parts_.added, false, nullptr)),
      normalized_added_(SelectAdded(parts_.added, true, parts_.normalizer.get())),
      pieces_(parts_.pre_tokenizer != nullptr ? parts_.pre_tokenizer->traits() : StageTraits()),
      pad_(FindPad(*this, parts_)),
      id_count_(CountIds(parts_)) {
  const bool splits = parts_.normalizer == nullptr || parts_.normalizer->traits().splits_at_blanks;
  by_words_ = pieces_.splits_at_blanks && normalized_added_.empty() && splits;
  may_cut_ = pieces_.cuts_at_spaces && normalized_added_.empty() && splits;
}

std::optional<TokenId> Tokenizer::FindToken(std::string_view token) const {
  const auto added = std::ranges::find(parts_.added, token, &AddedToken::content);
  return added != parts_.added.end() ? std::optional(added->id) : parts_.model->Find(token);
}

std::vector<std::string> Tokenizer::ModelNames() const {
  std::vector<std::string> names;
  for (TokenId id = 0; id <= parts_.model->max_id(); ++id) names.push_back(parts_.model->Name(id));
  return names;
}

absl::Status Tokenizer::Encode(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const {
  const size_t before = ids->size();
  ASSIGN_OR_RETURN(const std::vector<TextPart> parts, Cut(text, text.size()));
  for (const TextPart& part : parts) EncodePart(part, scratch, ids);
  return CheckKnown(std::span(*ids).subspan(before));
}

absl::StatusOr<std::vector<TextPart>> Tokenizer::Cut(std::string_view text, size_t bytes) const {
  if (const size_t invalid = FindInvalidUtf8(text); invalid != std::string_view::npos)
    return Invalid("byte ", invalid, " of the text is not UTF-8");
  std::vector<TextPart> parts;
  const auto cut = [&](std::string_view between) {
    for (bool first = between.data() == text.data(); !between.empty(); first = false) {
      const size_t end = may_cut_ ? FindCut(between, bytes) : between.size();
      parts.push_back({.text = between.substr(0, end), .first = first});
      between.remove_prefix(end);
    }
  };
  raw_added_.Split(text, cut,
                   [&](TokenId id, std::string_view match) { parts.push_back({.text = match, .added = id}); });
  return parts;
}

absl::Status Tokenizer::CheckKnown(std::span<const TokenId> ids) const {
  if (parts_.model->CanEncodeAll()) return absl::OkStatus();
  const auto unknown = std::ranges::find(ids, kNoToken);
  if (unknown == ids.end()) return absl::OkStatus();
  return Invalid("token ", unknown - ids.begin(), " of the text is not in the vocabulary, which has no unknown token");
}

void Tokenizer::EncodePart(const TextPart& part, TokenizerScratch* scratch, std::vector<TokenId>* ids) const {
  if (part.added != kNoToken) return ids->push_back(part.added);
  if (by_words_) return EncodeWords(part.text, scratch, ids);
  if (parts_.normalizer == nullptr) return EncodeNormalized(part.text, part.first, scratch, ids);
  scratch->normalized.clear();
  parts_.normalizer->Run(part.text, &scratch->normalized);
  EncodeNormalized(scratch->normalized, part.first, scratch, ids);
}

void Tokenizer::EncodeNormalized(std::string_view text, bool first, TokenizerScratch* scratch,
                                 std::vector<TokenId>* ids) const {
  if (normalized_added_.empty()) return EncodePieces(text, first, scratch, ids);
  normalized_added_.Split(
      text, [&](std::string_view part) { EncodePieces(part, first && part.data() == text.data(), scratch, ids); },
      [&](TokenId id, std::string_view) { ids->push_back(id); });
}

namespace {

constexpr size_t kBatch = 32;  // pieces that are scanned before the lookups

}  // namespace

void Tokenizer::EncodePieces(std::string_view text, bool first, TokenizerScratch* scratch,
                             std::vector<TokenId>* ids) const {
  TokenWriter writer(ids, text.size());
  const auto encode = [&](std::string_view all, size_t begin, size_t size) {
    if (scratch->cache.Append(all, begin, size, &writer)) return;
    const std::string_view piece = all.substr(begin, size);
    scratch->ids.clear();
    parts_.model->Tokenize(piece, &scratch->ids);
    scratch->cache.Add(piece, scratch->ids);
    writer.Append(scratch->ids);
  };
  if (text.empty()) return;
  if (parts_.pre_tokenizer == nullptr) return encode(text, 0, text.size());
  if (pieces_.scan == nullptr)
    return parts_.pre_tokenizer->Run(text, first, [&](std::string_view piece) { encode(piece, 0, piece.size()); });
  // Prefetches the cache entries of a batch of pieces while others are scanned.
  std::array<size_t, kBatch> ends;
  std::array<TokenCache::Place, kBatch> places;
  for (size_t begin = 0; begin < text.size();) {
    const std::span<const size_t> found = std::span(ends).first(pieces_.scan(text, begin, ends));
    for (size_t i = 0, at = begin; i < found.size(); at = found[i++])
      places[i] = scratch->cache.Fetch(text, at, found[i] - at);
    for (size_t i = 0; i < found.size(); begin = found[i++]) {
      if (!scratch->cache.Append(places[i], &writer)) encode(text, begin, found[i] - begin);
    }
  }
}

void Tokenizer::EncodeWord(std::string_view word, TokenizerScratch* scratch) const {
  scratch->ids.clear();
  scratch->normalized.clear();
  if (parts_.normalizer != nullptr) parts_.normalizer->Run(word, &scratch->normalized);
  const std::string_view normalized = parts_.normalizer != nullptr ? scratch->normalized : word;
  parts_.pre_tokenizer->Run(normalized, true,
                            [&](std::string_view piece) { parts_.model->Tokenize(piece, &scratch->ids); });
}

// Normalizes and splits only words that the cache does not know.
void Tokenizer::EncodeWords(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const {
  TokenWriter writer(ids, text.size());
  for (size_t begin = SkipBlanks(text, 0); begin < text.size();) {
    const size_t end = FindBlank(text, begin);
    if (!scratch->cache.Append(text, begin, end - begin, &writer)) {
      const std::string_view word = text.substr(begin, end - begin);
      EncodeWord(word, scratch);
      scratch->cache.Add(word, scratch->ids);
      writer.Append(scratch->ids);
    }
    begin = SkipBlanks(text, end);
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
