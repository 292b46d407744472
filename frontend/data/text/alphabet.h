// Alphabets of recognizers: the texts of the classes of a model that is trained with CTC (connectionist temporal
// classification), as characters, letters or pieces of words.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Immutable: any number of threads may use it at once.
class Alphabet {
 public:
  // `texts` has an entry for each class: "" for the blank and for other classes that are no text.
  Alphabet(std::vector<std::string> texts, int64_t blank);

  const std::vector<std::string>& texts() const { return texts_; }
  int64_t blank() const { return blank_; }  // the class that separates labels
  bool has_spaces() const { return has_spaces_; }

  // Returns the classes of a text, UTF-8, the longest texts of classes first. Letters take the case that all letters of
  // the alphabet have. Fails, naming it, at a character that no class begins with.
  absl::StatusOr<std::vector<int64_t>> Encode(std::string_view text) const;
  // Returns the text of classes, those of a label or those that MergeRepeats returns.
  std::string Decode(std::span<const int64_t> classes) const;

 private:
  std::vector<std::string> texts_;
  int64_t blank_;
  bool has_spaces_ = false, marks_words_ = false;
  bool all_upper_ = false, all_lower_ = false;  // all letters with a case have this one
  size_t longest_ = 0;                          // bytes
  std::unordered_map<std::string, int64_t> class_of_;
};

// Returns the classes of the best path: one for each run of equal classes, without those that are the blank.
std::vector<int64_t> MergeRepeats(std::span<const int64_t> path, int64_t blank);

// Reads the names of classes from a file: a JSON object of names and numbers (vocab.json of wav2vec2), a JSON list, or
// an object that holds one (charsets.json of dddd_trainer); the list character_dict of a YAML file (inference.yml of
// PP-OCR); a name and its number on every line (tokens.txt); or a name on every line, which may be a space, with
// comments that begin with # (the dictionaries of PP-OCR, alphabet.txt of DeepSpeech). An empty first or last name is
// the blank. Errors name the file.
absl::StatusOr<std::vector<std::string>> ReadAlphabetNames(const std::string& path);

// Returns the alphabet of a model whose output has `classes` classes. The names may lack the blank, which is then
// `blank`, else class 0, or class 0 and a last class for the space, as in models of PP-OCR. Without a `blank`, a name
// such as <blk> or <pad> tells it, or a first or last name that is empty, _ or -. Fails if the numbers of names and
// classes do not fit, or the blank is not known.
absl::StatusOr<std::shared_ptr<const Alphabet>> MakeAlphabet(std::vector<std::string> names, int64_t classes,
                                                             std::optional<int64_t> blank);

}  // namespace onnxtrain
