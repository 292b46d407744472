// The stages of a tokenizer, as Hugging Face's tokenizer.json names them: text is normalized, split into pieces
// (pre-tokenized), and each piece becomes token ids by the model. All stages are immutable: any number of threads may
// use them at once. All text is valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "frontend/base/strings.h"

namespace onnxtrain {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;  // of a piece that a model without an unknown token does not have
// Called with each piece, which lives only during the call.
using PieceSink = absl::FunctionRef<void(std::string_view)>;

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Appends the normalized text to *out.
  virtual void Apply(std::string_view text, std::string* out) const = 0;
  // Does the result of a text follow from those of its parts between ASCII blanks, which stay what they are?
  virtual bool KeepsBlanks() const { return false; }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Emits the pieces of the text in order. `first`: the text begins the input.
  virtual void Split(std::string_view text, bool first, PieceSink emit) const = 0;
  // Do spaces, tabs and line ends end pieces and belong to none, so that words are split independently?
  virtual bool DropsBlanks() const { return false; }
  // Do the pieces depend on `first`?
  virtual bool LooksAtPlace() const { return false; }
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of a piece.
  virtual void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const = 0;
  virtual std::optional<TokenId> Find(std::string_view token) const = 0;
  virtual TokenId max_id() const = 0;
  // Has every text tokens?
  virtual bool KnowsAll() const { return true; }
};

class Vocabulary {
 public:
  // The last one of equal tokens counts.
  void Add(std::string_view token, TokenId id) {
    max_id_ = std::max(max_id_, id);
    ids_[ToAbsl(token)] = id;
  }
  std::optional<TokenId> Find(std::string_view token) const {
    const auto it = ids_.find(ToAbsl(token));
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }
  TokenId max_id() const { return max_id_; }
  size_t size() const { return ids_.size(); }
  const absl::flat_hash_map<std::string, TokenId>& ids() const { return ids_; }

 private:
  absl::flat_hash_map<std::string, TokenId> ids_;
  TokenId max_id_ = -1;
};

}  // namespace onnxtrain
