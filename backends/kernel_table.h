// Operator name → how a backend prepares its kernel. Filled when the backend is loaded, read at compile only.
#pragma once

#include <map>
#include <string_view>

#include "frontend/ops/row.h"

namespace onnxtrain {

// Ends the process with a message: a broken table is a bug of ours, not of a user's.
[[noreturn]] void KernelTableFault(std::string_view what, std::string_view op);

template <typename Prepare>
class KernelTable {
 public:
  // A duplicate name, or one that is no operator's, is fatal.
  void Add(std::string_view op, Prepare prepare) {
    if (FindOp(op) == nullptr) KernelTableFault("a kernel for an unknown operator", op);
    if (!map_.emplace(op, prepare).second) KernelTableFault("two kernels for one operator", op);
  }
  // Null where there is none.
  const Prepare* Find(std::string_view op) const {
    auto it = map_.find(op);
    return it == map_.end() ? nullptr : &it->second;
  }

 private:
  std::map<std::string_view, Prepare> map_;
};

}  // namespace onnxtrain
