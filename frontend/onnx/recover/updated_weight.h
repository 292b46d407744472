// Computes the sum of a stored weight and a low-rank update, for files that hold the sum.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Groups updates by their weights, in the order in which the weights first occur.
std::vector<LowRankUpdates> GroupByWeight(const std::vector<LowRankUpdate>& updates);

// Returns A and B of the whole update from the trained tensors by name; with PiSSA they have twice the rank. Missing
// tensors have their initial values, since the loss does not depend on the product.
std::pair<HostTensor, HostTensor> WholeFactors(const LowRankUpdate& update,
                                               const std::map<std::string, HostTensor>& trained);

// Returns A [rank, inputs] and B [outputs, rank] of one matrix of a stack. Rows of A are grouped by expert, columns of
// B by rank.
std::pair<HostTensor, HostTensor> FactorsOfExpert(const HostTensor& a, const HostTensor& b, int64_t experts,
                                                  int64_t expert);

// Returns the floats of a quantized matrix, dequantized when they are read.
LazyTensor ReadFloats(std::shared_ptr<const StoredBlocks> blocks);

// Returns Σw² over the weights of each output, f64[outputs], of a matrix or of the weight of a convolution.
HostTensor SumSquares(const LazyTensor& weight, bool outputs_first);

// Computes W + scale·B·A, or its transpose if W is stored [inputs, outputs], or that of each matrix of a stack, in
// float32 and blocks of elements. With magnitudes, scales each output to its magnitude; an output of zeros stays.
// Outputs that are not part of the update keep their values.
class UpdatedWeight {
 public:
  // `trained` holds the trained tensors of the update by name.
  UpdatedWeight(LazyTensor weight, const LowRankUpdate& update, const std::map<std::string, HostTensor>& trained);

  // Returns `count` elements from `begin` on, in the weight's element type.
  HostTensor Read(int64_t begin, int64_t count) const;
  // Returns the factors by which magnitudes scale the outputs of the sum; empty without magnitudes.
  const std::vector<float>& factors() const { return factors_; }

 private:
  void SetMagnitudes(const HostTensor& magnitude, int64_t first_output);
  size_t OutputOf(int64_t element) const;
  std::vector<float> Sum(int64_t begin, int64_t count) const;
  void AddRow(int64_t row, int64_t first, int64_t last, float* out) const;

  LazyTensor weight_;
  bool outputs_first_;
  int64_t rank_, columns_, matrix_rows_;
  std::vector<float> rows_;     // [rows of the weight, rank], times the scale; of a stack the rows of all matrices
  std::vector<float> along_;    // [rank, columns of the weight], of a stack for each matrix
  std::vector<float> factors_;  // by output; empty: all are 1
};

}  // namespace onnxtrain
