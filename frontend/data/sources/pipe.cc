#include "frontend/data/sources/pipe.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// What was looked at and not yet read.
std::string& Peeked() {
  static auto* const peeked = new std::string;
  return *peeked;
}

absl::Status WaitForInput(const std::atomic<bool>* stop) {
  constexpr int kMilliseconds = 100;
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (true) {
    RETURN_IF_ERROR(CheckCancelled());
    if (stop != nullptr && stop->load()) return absl::CancelledError("nobody waits for the samples");
    const int ready = poll(&input, 1, kMilliseconds);
    if (ready < 0 && errno != EINTR) return Invalid(std::strerror(errno));
    if (ready > 0) return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<size_t> ReadStdin(std::span<std::byte> out, const std::atomic<bool>* stop) {
  std::string& peeked = Peeked();
  if (!peeked.empty()) {
    const size_t size = std::min(out.size(), peeked.size());
    std::memcpy(out.data(), peeked.data(), size);
    peeked.erase(0, size);
    return size;
  }
  while (true) {
    RETURN_IF_ERROR(WaitForInput(stop));
    const ssize_t got = read(STDIN_FILENO, out.data(), out.size());
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR && errno != EAGAIN) return Invalid(std::strerror(errno));
  }
}

absl::StatusOr<char> PeekStdin() {
  std::string& peeked = Peeked();
  while (true) {
    const size_t first = peeked.find_first_not_of(" \t\r\n");
    if (first != std::string::npos) return peeked[first];
    std::byte more[4096];
    // Behind what is there already.
    std::string before = std::move(peeked);
    peeked.clear();
    auto got = ReadStdin(more);
    peeked = std::move(before);
    RETURN_IF_ERROR(got.status());
    if (*got == 0) return '\0';
    peeked.append(reinterpret_cast<const char*>(more), *got);
  }
}

}  // namespace onnxtrain
