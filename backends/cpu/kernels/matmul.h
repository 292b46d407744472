// Makes matrix products with oneDNN.
#pragma once

#include <functional>
#include <optional>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

// y[batch…, m, n] = a[batch…, m, k]·b[batch…, k, n], where all three are strided views of the same rank.
struct Product {
  Shape a, b, y;  // extents
  Shape a_strides, b_strides, y_strides;
  int64_t m, k, n;

  bool empty() const { return m == 0 || k == 0 || n == 0 || NumElements(y) == 0; }
  // Return true if columns, not rows, of the matrix lie in a piece.
  bool trans_a() const { return a_strides.back() != 1; }
  bool trans_b() const { return b_strides.back() != 1; }
  // Returns true if there is one product of two matrices.
  bool is_single() const { return NumElements(y) == m * n && NumElements(a) == m * k && NumElements(b) == k * n; }
};

// Merges batch axes where the strides allow it: products with one shared matrix b become a single one of more rows.
Product MakeProduct(const Shape& a, const Shape& b, const Shape& y, bool trans_a, bool trans_b);

// y = a·b + bias + old. The bias is [n]; `adds` accumulates into y, whose old value is float32.
struct Epilogue {
  bool bias = false, adds = false;
  DType in = DType::kFloat32, out = DType::kFloat32;  // types of a and b, and of y
  DType bias_type = DType::kFloat32;
};

dnnl::matmul::primitive_desc MakeMatMulDesc(const Product& p, const dnnl::memory::desc& weights, Epilogue e);
// Returns true if the implementation accumulates into the destination (Epilogue::adds). Some of oneDNN's accept the
// post-op and ignore it, so each is tested once.
bool Accumulates(const Product& p, Epilogue e, const dnnl::matmul::primitive_desc& desc);
// Returns a call that takes a, the weights, the bias if there is one, y and scratch memory.
DnnlCall MakeMatMulCall(const dnnl::matmul::primitive_desc& desc, bool bias);

// Returns true if oneDNN's sgemm multiplies plain matrices of this type at least as fast as its matmul primitive does
// plain ones. The primitive of 2.6 is slow for wide results: half of sgemm's rate for 3072 columns.
bool PrefersSgemm(int64_t m, int64_t k, int64_t n, DType dtype, bool trans_b);
// Returns true if the fastest product of matrices of this type reads them plain, not packed in advance: tiles of AMX
// (float32 only) or sgemm.
bool ReadsPlainFloats(int64_t m, int64_t k, int64_t n, DType dtype, bool trans_b);
// Returns the kernel of a product of two float32 matrices.
Kernel MakeSgemm(const Product& p, Epilogue e);

// Returns the kernel of a product whose second matrix has this layout, plain or packed.
Kernel MakeProductKernel(const Product& p, const dnnl::memory::desc& weights, Epilogue e);

// Returns the kernel of a product of matrices that are not packed.
Kernel MakePlainProduct(const Product& p, Epilogue e);

// Returns the fastest layout of a weight [k, n] of that type for m rows, or nothing if plain ones are as fast.
std::optional<dnnl::memory::desc> FindPackedLayout(int64_t m, int64_t k, int64_t n, DType dtype);

// A packed layout of blocks of height × width pairs of bf16 from adjacent rows; distances of blocks down and across, in
// pairs.
struct PairBlocks {
  int64_t height, width, row_step, column_step;
};

// Returns the blocks of a layout of pairs, or nothing for other layouts.
std::optional<PairBlocks> GetPairBlocks(const dnnl::memory::desc& layout);

// Copies `from` over `to` unless it is the same memory.
void CopyOver(const float* from, float* to, int64_t size);

// Packs a float32 matrix into memory of a packed layout, in several threads.
using PackMatrix = std::function<void(const float* matrix, void* packed)>;

// Returns a function that packs a matrix [k, n] into the layout, or null for layouts other than those of
// FindPackedLayout. The matrix is stored as [n, k] if `transposed`; its rows are `stride` elements apart.
PackMatrix FindPacking(const dnnl::memory::desc& layout, bool transposed, int64_t stride);

// Returns the number of columns of a weight [k, n] that products of m rows pack and multiply at a time; 0 if such
// products cannot pack tiles.
int64_t FindTileWidth(int64_t m, int64_t k, int64_t n, DType dtype);

}  // namespace onnxtrain::cpu
