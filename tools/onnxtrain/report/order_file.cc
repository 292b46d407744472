#include "tools/onnxtrain/report/order_file.h"

#include <cerrno>
#include <cstring>

#include "frontend/base/status.h"

namespace onnxtrain::cli {

absl::StatusOr<std::unique_ptr<OrderFile>> OrderFile::Open(const std::string& path, bool append) {
  std::ofstream file(path, append ? std::ios::app : std::ios::trunc);
  if (!file) return Invalid("`dump_order` ", path, ": ", std::strerror(errno));
  return std::unique_ptr<OrderFile>(new OrderFile(path, std::move(file)));
}

absl::Status OrderFile::Write(int64_t update, const Batch& batch, const Dataset& data) {
  for (const int64_t sample : batch.samples)
    file_ << update << '\t' << batch.epoch << '\t' << data.Describe(sample) << '\n';
  if (!file_.flush()) return absl::DataLossError(StrCat("`dump_order` ", path_, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace onnxtrain::cli
