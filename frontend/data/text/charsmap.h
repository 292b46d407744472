// SentencePiece's table of normalizations, "Precompiled" in tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/text/normalizers.h"

namespace onnxtrain {

// A double-array trie (Darts-clone) of character sequences, and what they become.
class Charsmap {
 public:
  // The bytes of a charsmap: the size of the trie, its units of 32 bits, and texts that end in NUL. Fails on sizes that
  // contradict each other.
  static absl::StatusOr<Charsmap> Parse(std::string_view bytes);

  // What the shortest sequence that `text` begins with becomes, as Hugging Face's `tokenizers` have it; nullopt: none
  // is in the table.
  std::optional<std::string_view> Find(std::string_view text) const;

 private:
  std::optional<uint32_t> FindShortest(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

// Replaces grapheme clusters of less than 6 bytes, or else single characters, that the table has.
NormalizerPtr MakeCharsmapNormalizer(Charsmap charsmap);

}  // namespace onnxtrain
