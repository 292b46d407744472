#include "optim/record/order_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Returns the size in bytes of the lines of the first `done` updates.
int64_t FindEnd(const std::string& path, int64_t done) {
  std::ifstream file(path);
  int64_t end = 0;
  for (std::string line; std::getline(file, line) && !file.eof(); end += std::ssize(line) + 1) {
    if (std::strtoll(line.c_str(), nullptr, 10) > done) break;
  }
  return end;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OrderFile>> OrderFile::Open(const std::string& path, int64_t done) {
  std::error_code missing;
  if (done > 0) std::filesystem::resize_file(path, FindEnd(path, done), missing);
  std::ofstream file(path, done > 0 ? std::ios::app : std::ios::trunc);
  if (!file) return Invalid("`dump_order` ", path, ": ", std::strerror(errno));
  return std::unique_ptr<OrderFile>(new OrderFile(path, std::move(file)));
}

absl::Status OrderFile::Write(int64_t update, const Batch& batch, const Dataset& data) {
  for (const int64_t sample : batch.samples)
    file_ << update << '\t' << batch.epoch << '\t' << data.Describe(sample) << '\n';
  if (!file_.flush()) return absl::DataLossError(StrCat("`dump_order` ", path_, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace onnxtrain
