// Estimates the memory of the code that libraries generate for products and convolutions.
#pragma once

#include <cstddef>
#include <set>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Products and convolutions of programs. Those of one kind (operator, attributes, types of operands) have the same
// kernels, which programs share: all of the program with most of them count, and the further kinds of the others.
class CodeEstimate {
 public:
  CodeEstimate() = default;
  explicit CodeEstimate(const Graph& graph);

  // Adds what another program has and these do not.
  void Include(const CodeEstimate& other);
  size_t bytes() const;

 private:
  std::set<size_t> kinds_;               // hashes
  size_t products_ = 0, own_kinds_ = 0;  // of the program with most products
};

}  // namespace onnxtrain
