// The errors of an import: all of them are collected, then reported as one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "frontend/onnx/import_failures.h"
#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

class ErrorList {
 public:
  // `extents` as in NodeFailure.
  void Add(const ParsedNode& node, const absl::Status& status, std::vector<int64_t> extents = {});
  size_t size() const { return failures_.size(); }
  // OK, or one status with the code of the first error, the messages of the first 20, and the failures of all.
  absl::Status Summary() const;

 private:
  std::vector<NodeFailure> failures_;
  absl::StatusCode code_ = absl::StatusCode::kOk;
};

// The status of a node that fails because another one has failed and was reported.
absl::Status AlreadyReported();

}  // namespace onnxtrain
