// What ends the run of a kernel that another party brings along; it becomes a Status where oneDNN's exceptions do.
#pragma once

#include <exception>
#include <utility>

#include "absl/status/status.h"

namespace onnxtrain::cpu {

class KernelFailure : public std::exception {
 public:
  explicit KernelFailure(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace onnxtrain::cpu
