#include "frontend/base/status.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

int64_t CountChars(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

bool BeginsChar(std::string_view text, size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

class WordPiece : public TokenModel {
 public:
  WordPiece(WordPieceSpec spec, TokenId unknown) : spec_(std::move(spec)), unknown_(unknown) {
    for (const auto& [token, id] : spec_.vocabulary.ids()) longest_ = std::max(longest_, token.size());
  }

  void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const override {
    const size_t before = ids->size();
    if (CountChars(piece) <= spec_.max_chars && Match(piece, ids)) return;
    ids->resize(before);
    ids->push_back(unknown_);
  }
  std::optional<TokenId> Find(std::string_view token) const override { return spec_.vocabulary.Find(token); }
  TokenId max_id() const override { return spec_.vocabulary.max_id(); }

 private:
  bool Match(std::string_view piece, std::vector<TokenId>* ids) const {
    std::string token;
    for (size_t begin = 0; begin < piece.size();) {
      const std::string_view prefix = begin == 0 ? std::string_view() : spec_.prefix;
      size_t end = std::min(piece.size(), begin + longest_);
      std::optional<TokenId> found;
      for (; end > begin && !found; --end) {
        if (BeginsChar(piece, end)) found = Find(token.assign(prefix).append(piece.substr(begin, end - begin)));
      }
      if (!found) return false;
      ids->push_back(*found);
      begin = end + 1;
    }
    return true;
  }

  WordPieceSpec spec_;
  TokenId unknown_;
  size_t longest_ = 0;  // maximum bytes of a token
};

class WordLevel : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::optional<TokenId> unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}
  void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const override {
    const std::optional<TokenId> id = Find(piece);
    ids->push_back(id ? *id : unknown_.value_or(kNoToken));
  }
  std::optional<TokenId> Find(std::string_view token) const override { return vocabulary_.Find(token); }
  TokenId max_id() const override { return vocabulary_.max_id(); }
  bool CanEncodeAll() const override { return unknown_.has_value(); }

 private:
  Vocabulary vocabulary_;
  std::optional<TokenId> unknown_;
};

absl::Status MissingUnknown(const std::string& token) {
  return Invalid("the unknown token '", token, "' is not in the vocabulary");
}

}  // namespace

absl::StatusOr<TokenModelPtr> MakeWordPiece(WordPieceSpec spec) {
  const auto unknown = spec.vocabulary.Find(spec.unknown);
  if (!unknown) return MissingUnknown(spec.unknown);
  return std::make_unique<WordPiece>(std::move(spec), *unknown);
}

absl::StatusOr<TokenModelPtr> MakeWordLevel(Vocabulary vocabulary, const std::string& unknown) {
  const auto id = vocabulary.Find(unknown);
  return std::make_unique<WordLevel>(std::move(vocabulary), id);
}

}  // namespace onnxtrain
