// Products of bf16 or float32 in tiles of AMX.
#pragma once

#include <optional>

#include "backends/cpu/kernels/matmul.h"

namespace onnxtrain::cpu {

// Returns true if single products of such matrices are made of tiles.
bool PrefersAmx(int64_t m, int64_t k, int64_t n, DType dtype);

// Returns the kernel of a product whose weight is in `packed`, or plain if that is null. Returns nothing if the
// processor has no tiles, or if oneDNN's product is as fast: several matrices, few rows or columns.
std::optional<Kernel> MakeAmxProduct(const Product& p, const dnnl::memory::desc* packed, const Epilogue& e);

}  // namespace onnxtrain::cpu
