// Compares the values of tensors by their bytes.
#pragma once

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Whether all elements are equal. Such tensors are equal by chance: fresh scales are ones, fresh biases zeros.
bool IsSplat(const HostTensor& tensor);

// Whether it has floating-point numbers along one axis at most.
bool IsVector(const HostTensor& tensor);

// Whether it is the bias of a fresh LSTM: 1 for the forget gate, which is a quarter of it, and 0 elsewhere.
bool IsForgetBias(const HostTensor& tensor);

// Whether its rows are the logarithms of 1, 2, 3 …: the decay rates of a fresh state space (Gu and Dao, "Mamba", 2023).
bool IsFreshDecay(const HostTensor& tensor);

// Whether it may equal other weights because nothing has trained them.
bool IsFresh(const HostTensor& tensor);

// Whether it is a list of at least 4 equally spaced numbers or of powers: frequencies, slopes, a grid.
bool IsProgression(const HostTensor& tensor);

// Returns the sum of its bytes, which does not depend on the order of its elements: equal for transposes of each other.
uint64_t SumOfBytes(const HostTensor& tensor);

// Whether it is a square matrix, or a batch of them, of 3 rows at least, that no initializer draws and no training
// makes: equal to its transpose but not diagonal, or without negative numbers and with rows or columns that sum to 1
// (or 0). The graph of a graph network, a kernel that blurs.
bool IsGraphMatrix(const HostTensor& tensor);

// Whether one is the other with its last two axes exchanged.
bool IsTransposeOf(const HostTensor& a, const HostTensor& b);

// Returns the shape with its last two axes exchanged.
Shape TransposedShape(Shape shape);

}  // namespace onnxtrain
