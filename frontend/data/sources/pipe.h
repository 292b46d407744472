// The standard input of the process: bytes that can be read once.
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Reads at least one byte, unless the input has ended, and at most out.size(). Waits for it; fails with kCancelled once
// preparations are cancelled (frontend/base/cancellation.h), or *stop is set (null: never). One thread at a time.
absl::StatusOr<size_t> ReadStdin(std::span<std::byte> out, const std::atomic<bool>* stop = nullptr);

// Looks at the first byte that is no white space, and leaves everything to be read; '\0' where there is none.
absl::StatusOr<char> PeekStdin();

}  // namespace onnxtrain
