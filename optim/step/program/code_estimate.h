// Estimates the memory that compiled products and convolutions take.
#pragma once

#include <cstddef>
#include <set>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Products and convolutions of one kind (operator, attributes, types of operands) share the kernels that libraries
// generate for them, also in several programs; each has a call of its own, with descriptions of its operands.
class CodeEstimate {
 public:
  CodeEstimate() = default;
  explicit CodeEstimate(const Graph& graph);

  // Adds another program.
  void Include(const CodeEstimate& other);
  size_t bytes() const { return kind_bytes() + call_bytes(); }
  size_t kind_bytes() const;
  size_t call_bytes() const;

 private:
  std::set<size_t> kinds_;  // hashes
  size_t calls_ = 0;
};

}  // namespace onnxtrain
