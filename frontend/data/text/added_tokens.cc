#include "frontend/data/text/added_tokens.h"

#include <algorithm>

#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

size_t PairOf(unsigned char first, unsigned char second) { return size_t{first} << 8 | second; }

char32_t FirstChar(std::string_view text) {
  char32_t c;
  DecodeChar(text, &c);
  return c;
}

// The offset of the last character before `end`, which is not 0.
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
        pairs_.set(PairOf(first(tokens_[i]), static_cast<unsigned char>(second)));
    }
  }
}

// Returns the next place at which a token may begin, from `at` on; text.size() where there is none.
size_t AddedTokenFinder::FindCandidate(std::string_view text, size_t at) const {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (; at < text.size(); ++at) {
    if (only_first_.has_value()) at = std::min(text.find(*only_first_, at), text.size() - 1);
    const auto [begin, end] = by_first_[byte(at)];
    if (begin < end && (at + 1 == text.size() || pairs_.test(PairOf(byte(at), byte(at + 1))))) return at;
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
                             absl::FunctionRef<void(TokenId)> token) const {
  size_t done = 0;
  if (tokens_.empty()) return text.empty() ? void() : text_between(text);
  for (size_t at = FindCandidate(text, 0); at < text.size();) {
    const AddedToken* found = FindAt(text, at);
    const size_t end = at + (found != nullptr ? found->content.size() : 1);
    if (found != nullptr && (!found->single_word || StandsAlone(text, at, end))) {
      const size_t begin = found->left_strip ? SkipSpacesLeft(text, at, done) : at;
      if (done < begin) text_between(text.substr(done, begin - done));
      token(found->id);
      done = found->right_strip ? SkipSpacesRight(text, end) : end;
    }
    at = FindCandidate(text, std::max(end, done));
  }
  if (done < text.size()) text_between(text.substr(done));
}

}  // namespace onnxtrain
