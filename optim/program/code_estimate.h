// Estimates the memory of the code that libraries generate for products and convolutions.
#pragma once

#include <cstddef>
#include <map>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Products and convolutions of programs: how many there are of each kind. Those of one kind (operator, attributes,
// types of operands) have the same kernels, which programs share.
class CodeEstimate {
 public:
  CodeEstimate() = default;
  explicit CodeEstimate(const Graph& graph);

  // Adds what another program has and these do not.
  void Include(const CodeEstimate& other);
  size_t bytes() const;

 private:
  std::map<size_t, size_t> counts_;  // by a hash of the kind
  size_t most_ = 0;                  // in one program
};

}  // namespace onnxtrain
