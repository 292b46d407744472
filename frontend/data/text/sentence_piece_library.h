// An interface of libsentencepiece in types of the standard library, since its header declares an absl::string_view
// that conflicts with abseil's.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain {

// A loaded model. Immutable and thread-safe.
class SentencePieceLibrary {
 public:
  // Returns null and sets *error if the bytes are not a model.
  static std::unique_ptr<const SentencePieceLibrary> Load(const std::string& bytes, std::string* error);
  virtual ~SentencePieceLibrary() = default;

  virtual std::vector<int> Encode(std::string_view text) const = 0;
  virtual int Find(std::string_view token) const = 0;  // -1: not a token
  virtual std::string Name(int id) const = 0;          // `id` is below size()
  virtual int size() const = 0;
  virtual int begin_id() const = 0;  // these ids are -1 if there is no such token
  virtual int end_id() const = 0;
  virtual int pad_id() const = 0;
};

}  // namespace onnxtrain
