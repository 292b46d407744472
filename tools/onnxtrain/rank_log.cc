#include "tools/onnxtrain/rank_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "frontend/base/status.h"

namespace onnxtrain::cli {
namespace {

// A log that cannot be written ends no training.
void WriteTo(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

// The other end of stderr.
struct Tee {
  bool prints = false;
  int file = -1;

  void Write(std::string_view text) const {
    WriteTo(file, text);
    if (prints) WriteTo(STDERR_FILENO, text);
  }
};

Tee tee;

ssize_t WriteToTee(void* tee, const char* text, size_t size) {
  static_cast<const Tee*>(tee)->Write({text, size});
  return static_cast<ssize_t>(size);
}

}  // namespace

absl::Status LogToFile(const Rank& rank, const TrainConfig& given, const std::string& folder) {
  const std::string path = StrCat(folder, "/rank-", rank.rank, ".log");
  const int replaces = given.overwrite && given.resume.empty() ? O_TRUNC : 0;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | replaces, 0666);
  if (fd < 0) return Invalid(path, ": ", std::strerror(errno));
  tee = {.prints = rank.rank == 0, .file = fd};
  FILE* stream = fopencookie(&tee, "w", {.read = nullptr, .write = WriteToTee, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return Invalid(path, ": ", std::strerror(errno));
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  stderr = stream;
  return absl::OkStatus();
}

void LogAsRank(const Rank& rank, const std::string& line, bool prints) {
  if (tee.file >= 0) std::fputs((line + "\n").c_str(), stderr);
  if (prints) WriteTo(STDERR_FILENO, StrCat("[rank ", rank.rank, "] ", line, "\n"));
}

}  // namespace onnxtrain::cli
