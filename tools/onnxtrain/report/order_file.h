// Writes which samples each update was trained on (`dump_order`).
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/loader.h"

namespace onnxtrain::cli {

// One line per sample, separated by tabs: update (the first is 1), epoch (the first is 0), where the sample stands in
// the data.
class OrderFile {
 public:
  // Replaces the file; `append`: goes on behind what is there, for a run that continues.
  static absl::StatusOr<std::unique_ptr<OrderFile>> Open(const std::string& path, bool append);
  absl::Status Write(int64_t update, const Batch& batch, const Dataset& data);

 private:
  OrderFile(std::string path, std::ofstream file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  std::ofstream file_;
};

}  // namespace onnxtrain::cli
