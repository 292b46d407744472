// Multiplies by a weight that is packed tile by tile into memory that stays in the caches, so that no packed copy of
// the whole weight is kept.
#pragma once

#include <functional>

#include "backends/cpu/kernels/matmul.h"

namespace onnxtrain::cpu {

// Reads tiles of columns of a weight [k, n] as float32. FindTileWidth returns the width.
struct TileSource {
  int64_t width;       // columns of a tile; the last one may have fewer
  bool transposed;     // a tile is stored as [columns, k], not as [k, columns]
  int64_t stride;      // elements from a row of a stored tile to the next one
  size_t scratch = 0;  // bytes that `read` needs
  std::function<const float*(const Args& args, int64_t first, int64_t columns, std::byte* scratch)> read;
};

// Returns y = a·w + bias + old, where a is input 0, the bias input 2 and the old value input 3. The result is bitwise
// equal to the product with a weight that is packed as a whole.
Kernel MakeTiledProduct(const Product& p, Epilogue e, const TileSource& source);

}  // namespace onnxtrain::cpu
