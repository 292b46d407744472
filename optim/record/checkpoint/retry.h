// Calls of the system that a signal may interrupt.
#pragma once

#include <cerrno>

namespace onnxtrain {

// Calls again while a signal interrupts the call. Returns the result of the last one.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace onnxtrain
