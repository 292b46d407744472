// Records which samples each update of a run has seen (`dump_order`).
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Writes the samples of each update, one line per sample with three fields separated by tabs: update (from 1), epoch
// (from 0), location of the sample in the data.
class OrderFile {
 public:
  // Replaces the file. A run that resumes after `done` > 0 updates keeps the lines of these updates.
  static absl::StatusOr<std::unique_ptr<OrderFile>> Open(const std::string& path, int64_t done);
  absl::Status Write(int64_t update, const Batch& batch, const Dataset& data);

 private:
  OrderFile(std::string path, std::ofstream file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  std::ofstream file_;
};

}  // namespace onnxtrain
