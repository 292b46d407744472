// Regular expressions over UTF-8, by ICU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// Immutable; any number of threads may match at once.
class Regex {
 public:
  static absl::StatusOr<std::shared_ptr<const Regex>> Compile(const std::string& expression);
  virtual ~Regex() = default;
  // Calls visit(begin, end) for each match, in bytes, from left to right; empty matches do not count. Throws
  // std::bad_alloc where memory runs out.
  virtual void ForEachMatch(std::string_view text, absl::FunctionRef<void(size_t, size_t)> visit) const = 0;
};

}  // namespace onnxtrain
