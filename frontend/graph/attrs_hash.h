// Hashes of attributes and tensors: equal for equal ones.
#pragma once

#include <cstddef>

#include "frontend/graph/attrs.h"

namespace onnxtrain {

// Returns a hash of what `hash` stands for, followed by `more`.
inline size_t MixHash(size_t hash, size_t more) { return (hash ^ more) * 0x9E3779B97F4A7C15u + (hash >> 29); }

// Hashes the beginning of a long tensor.
size_t HashTensor(const HostTensor& tensor);
size_t HashAttrs(const Attrs& attrs);

}  // namespace onnxtrain
