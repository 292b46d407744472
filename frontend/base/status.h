// Error handling. Functions that depend on input, files or devices return absl::Status; CHECK (log.h) is only for bugs
// of this project.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/base/strings.h"

#define ONNXTRAIN_CONCAT_INNER(a, b) a##b
#define ONNXTRAIN_CONCAT(a, b) ONNXTRAIN_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expr)                                         \
  do {                                                                \
    if (absl::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()) declares or assigns x, or returns the error of F().
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_IMPL(ONNXTRAIN_CONCAT(statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) return tmp.status();         \
  lhs = std::move(tmp).value()

namespace onnxtrain {

// Returns an InvalidArgumentError whose message concatenates the arguments.
template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(StrCat(args...));
}

// Returns the error with `prefix` before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, std::string_view prefix) {
  return status.ok() ? status : absl::Status(status.code(), StrCat(prefix, status.message()));
}

}  // namespace onnxtrain
