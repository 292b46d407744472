// Readers of untrusted files as functions of bytes. Any bytes are read, or refused with an error of one line; a crash,
// a sanitizer's report and a broken promise of a reader (CHECK) are bugs.
#pragma once

#include <span>
#include <string_view>

namespace onnxtrain {

struct FuzzTarget {
  std::string_view name;
  bool (*run)(std::string_view bytes);  // returns whether the reader accepts the bytes
};

std::span<const FuzzTarget> FuzzTargets();

}  // namespace onnxtrain
