// libsentencepiece behind types of the standard library: its header declares an absl::string_view of its own, which
// excludes abseil's.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain {

// Immutable; any number of threads may encode at once.
class SentencePieceLibrary {
 public:
  // Null, with *error, where the bytes are no model.
  static std::unique_ptr<const SentencePieceLibrary> Load(const std::string& bytes, std::string* error);
  virtual ~SentencePieceLibrary() = default;

  virtual std::vector<int> Encode(std::string_view text) const = 0;
  virtual int Find(std::string_view token) const = 0;  // -1: there is none
  virtual int size() const = 0;
  virtual int begin_id() const = 0;  // -1: there is none; the others likewise
  virtual int end_id() const = 0;
  virtual int pad_id() const = 0;
};

}  // namespace onnxtrain
