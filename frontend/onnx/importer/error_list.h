// The errors of an import: all of them are collected, then reported as one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "frontend/onnx/parsed.h"

namespace onnxtrain {

class ErrorList {
 public:
  void Add(const ParsedNode& node, const absl::Status& status);
  size_t size() const { return messages_.size(); }
  // OK, or one status with the code of the first error and the messages of the first 20.
  absl::Status Summary() const;

 private:
  std::vector<std::string> messages_;
  absl::StatusCode code_ = absl::StatusCode::kOk;
};

// The status of a node that fails because another one has failed and was reported.
absl::Status AlreadyReported();

}  // namespace onnxtrain
