// Examines the nodes that read a value: whether they take it as a weight, and the matrix of the layer that they are in.
// For files without the metadata of torch.export.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/weight_index.h"

namespace onnxtrain {

inline constexpr size_t kMaxVisited = 16;  // nodes between a weight and what shows its role

// Lists the initializers of floating-point numbers that have elements and that nodes read, in the order of the file.
std::vector<std::string> ListReadWeights(const WeightIndex& index);

// Returns true for unit matrices and masks, which have both zeros and ones. Weights of zeros alone do not count.
bool IsOfZerosAndOnes(const HostTensor& tensor);

// Returns the node of this operator that alone reads the output of `node`, or null.
const ParsedNode* FindOnlyReader(const WeightIndex& index, const ParsedNode& node, std::string_view op);

// Returns the matrix of a bias: the other weight of the node, or the weight of the product before an Add; else null.
const HostTensor* FindMatrix(const WeightIndex& index, const WeightReader& reader);

// Returns true if the input can only be a weight: of a normalization, matrix product or convolution, or the bias added
// to one.
bool TakesOwnWeight(const WeightIndex& index, const WeightReader& reader);

}  // namespace onnxtrain
