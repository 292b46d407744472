// Convolution, normalization and pooling with what only this backend has: packed weights, epilogues, mixed types. And
// cpu.View, which names the layout of bytes.
#pragma once

#include <vector>

#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

std::vector<OpRow> NnRows();

// The bytes of x as a tensor of that type: x itself, a Reshape or a cpu.View.
Val Reinterpret(Val x, const Type& type);

// Row-major [N,C,…] stored channels last, and back.
Val ToNhwc(Val x);
Val ToNchw(Val x);

// The axes of [N,C,…] in the order [N,…,C], and back.
std::vector<int64_t> NchwToNhwcPerm(int rank);
std::vector<int64_t> NhwcToNchwPerm(int rank);

}  // namespace onnxtrain::cpu
