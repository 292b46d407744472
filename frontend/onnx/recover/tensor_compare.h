// Compares the values of tensors by their bytes.
#pragma once

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Returns true if all elements are equal. Such tensors are equal by chance: fresh scales are ones, fresh biases zeros.
bool IsSplat(const HostTensor& tensor);

// Returns true if the tensor has floating-point numbers along one axis at most.
bool IsVector(const HostTensor& tensor);

// Returns true if the tensor is the bias of a fresh LSTM: 1 in one quarter, the forget gate, and 0 elsewhere.
bool IsForgetBias(const HostTensor& tensor);

// Returns true if the rows are log 1, log 2, log 3 …: decay rates of a fresh state space (Gu and Dao, "Mamba", 2023).
bool IsFreshDecay(const HostTensor& tensor);

// Returns true if the tensor may equal other weights because nothing has trained them.
bool IsFresh(const HostTensor& tensor);

// Returns true if the tensor is a list of at least 4 equally spaced numbers or of powers: frequencies, slopes, a grid.
bool IsProgression(const HostTensor& tensor);

// Returns the sum of its bytes, which does not depend on the order of its elements: equal for transposes of each other.
uint64_t SumOfBytes(const HostTensor& tensor);

// Returns true if the tensor is a square matrix, or a batch of them, with at least 3 rows, that neither an initializer
// nor training produces: equal to its transpose but not diagonal, or without negative numbers and with rows or columns
// that sum to 1 (or 0). Such matrices are adjacency matrices of graph networks and blur kernels.
bool IsGraphMatrix(const HostTensor& tensor);

// Returns true if one tensor is the transpose of the other in the last two axes.
bool IsTransposeOf(const HostTensor& a, const HostTensor& b);

// Returns the shape with its last two axes exchanged.
Shape TransposedShape(Shape shape);

}  // namespace onnxtrain
