// Normalizers of tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {

using NormalizerPtr = std::unique_ptr<const Normalizer>;

struct BertOptions {
  bool clean_text = true, chinese = true, strip_accents = true, lowercase = true;
};
// Removes control characters, spaces ideographs, strips accents (NFD without Mn), lower-cases: in that order.
NormalizerPtr MakeBertNormalizer(const BertOptions& options);
NormalizerPtr MakeFormNormalizer(NormalForm form);
NormalizerPtr MakeLowercase();
NormalizerPtr MakeStripAccents();  // removes marks, without decomposing
NormalizerPtr MakeStrip(bool left, bool right);
NormalizerPtr MakePrepend(std::string prefix);  // to texts that are not empty
NormalizerPtr MakeReplace(std::string text, std::string with);
// Fails on a broken expression.
absl::StatusOr<NormalizerPtr> MakeRegexReplace(const std::string& expression, std::string with);
NormalizerPtr MakeNormalizerSequence(std::vector<NormalizerPtr> steps);

// SentencePiece's table of normalizations, "Precompiled" in tokenizer.json.

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
