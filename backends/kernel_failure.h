// Ends the run of a kernel that may fail, among those that may not; it becomes a Status where the exceptions of the
// backend's library do.
#pragma once

#include <exception>
#include <utility>

#include "absl/status/status.h"

namespace onnxtrain {

class KernelFailure : public std::exception {
 public:
  explicit KernelFailure(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace onnxtrain
