#include "tools/onnxtrain/rank_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "frontend/base/status.h"
#include "frontend/base/units.h"

namespace onnxtrain::cli {
namespace {

absl::StatusOr<int> ReadNumber(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  const auto number = ParseInt(text);
  if (!number.ok() || *number < 0 || *number > 1'000'000) return Invalid(name, "=", text, ": expected a number");
  return static_cast<int>(*number);
}

// The other end of stderr. Lives as long as the process.
struct Tee {
  Rank rank;
  int file = -1;
  bool begins_line = true, forwards = false;

  void Write(std::string_view text) {
    WriteTo(file, text);
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n') == text.npos ? text.npos : text.find('\n') + 1);
      Forward(line);
      text.remove_prefix(line.size());
    }
  }

 private:
  void Forward(std::string_view line) {
    if (begins_line) {
      forwards = rank.rank == 0 || line.starts_with("onnxtrain: ");
      if (forwards && rank.rank > 0) WriteTo(STDERR_FILENO, StrCat("[rank ", rank.rank, "] "));
    }
    if (forwards) WriteTo(STDERR_FILENO, line);
    begins_line = line.ends_with('\n');
  }

  // A log that cannot be written ends no training.
  static void WriteTo(int fd, std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = write(fd, text.data(), text.size());
      if (n < 0 && errno != EINTR) return;
      if (n > 0) text.remove_prefix(static_cast<size_t>(n));
    }
  }
};

ssize_t WriteToTee(void* tee, const char* text, size_t size) {
  static_cast<Tee*>(tee)->Write({text, size});
  return static_cast<ssize_t>(size);
}

}  // namespace

absl::StatusOr<Rank> ReadRank() {
  Rank rank;
  ASSIGN_OR_RETURN(rank.size, ReadNumber("WORLD_SIZE", 1));
  ASSIGN_OR_RETURN(rank.rank, ReadNumber("RANK", 0));
  if (rank.rank >= rank.size) return Invalid("RANK=", rank.rank, " is not below WORLD_SIZE=", rank.size);
  return rank;
}

std::string RankFolder(const Rank& rank, const std::string& out) {
  return rank.rank == 0 || out.empty() ? out : StrCat(out, "/rank-", rank.rank);
}

absl::Status LogToFile(const Rank& rank, const std::string& folder) {
  const std::string path = StrCat(folder, "/rank-", rank.rank, ".log");
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return Invalid(path, ": ", std::strerror(errno));
  static Tee tee;
  tee = {.rank = rank, .file = fd};
  FILE* stream = fopencookie(&tee, "w", {.read = nullptr, .write = WriteToTee, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return Invalid(path, ": ", std::strerror(errno));
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  stderr = stream;
  return absl::OkStatus();
}

}  // namespace onnxtrain::cli
