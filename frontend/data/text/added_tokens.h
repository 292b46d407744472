// Tokens that are found in text before it is split: special tokens and those that were added to a vocabulary.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;                      // no word character may be beside it
  bool left_strip = false, right_strip = false;  // takes in the spaces before or behind it
  bool normalized = false;                       // found in normalized text
};

// Finds tokens, the leftmost first and of these the longest.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  bool empty() const { return tokens_.empty(); }
  // Calls text_between(piece) and token(id) in the order of the text. Pieces may be empty at no place.
  void Split(std::string_view text, absl::FunctionRef<void(std::string_view)> text_between,
             absl::FunctionRef<void(TokenId)> token) const;

 private:
  const AddedToken* FindAt(std::string_view text, size_t at) const;
  size_t FindCandidate(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;                       // by first byte, then the longest first
  std::vector<std::pair<uint32_t, uint32_t>> by_first_;  // [begin, end) of tokens_, by first byte
  std::bitset<65536> pairs_;                             // the first two bytes of tokens
  std::optional<char> only_first_;                       // the byte that all tokens begin with
};

}  // namespace onnxtrain
