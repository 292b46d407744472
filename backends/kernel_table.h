// Maps operator names to the functions that prepare their kernels. Filled when a backend is loaded, read at compile.
#pragma once

#include <exception>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Thrown by the run of a kernel that can fail, such as a collective. The backend converts it to a Status, as it does
// with the exceptions of its library.
class KernelFailure : public std::exception {
 public:
  explicit KernelFailure(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Ends the process with a message: a broken table is a bug of the backend.
[[noreturn]] void DieOnBadKernelTable(std::string_view what, std::string_view op);

template <typename Prepare>
class KernelTable {
 public:
  // Adds a kernel. Ends the process if the operator is unknown or already has one.
  void Add(std::string_view op, Prepare prepare) {
    if (FindOp(op) == nullptr) DieOnBadKernelTable("a kernel for an unknown operator", op);
    if (!map_.emplace(op, prepare).second) DieOnBadKernelTable("two kernels for one operator", op);
  }
  // Returns the function of an operator, or null if it has none.
  const Prepare* Find(std::string_view op) const {
    auto it = map_.find(op);
    return it == map_.end() ? nullptr : &it->second;
  }

 private:
  absl::flat_hash_map<std::string_view, Prepare> map_;
};

}  // namespace onnxtrain
