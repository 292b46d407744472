// Writes which samples each update was trained on (`dump_order`).
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"

namespace onnxtrain::cli {

// One line per sample, separated by tabs: update (the first is 1), epoch (the first is 0), where the sample stands in
// the data.
class OrderFile {
 public:
  // Replaces the file; a run that continues after `done` > 0 updates keeps their lines, which come first.
  static absl::StatusOr<std::unique_ptr<OrderFile>> Open(const std::string& path, int64_t done);
  absl::Status Write(int64_t update, const Batch& batch, const Dataset& data);

 private:
  OrderFile(std::string path, std::ofstream file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  std::ofstream file_;
};

}  // namespace onnxtrain::cli
