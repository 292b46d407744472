// Matrices of stored numbers, and products with them. A product dequantizes its matrix to scratch memory, which lives
// no longer than the product: large matrices, such as those of all experts below each other, in tiles of rows.
#include "backends/torch/kernels/dequantize.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "frontend/base/log.h"

namespace onnxtrain::aten {
namespace {

// Returns the first `columns` numbers of packed rows.
at::Tensor Unpacked(const at::Tensor& q, int64_t bits, int64_t columns) {
  if (bits >= 8) return q.narrow(1, 0, columns);
  std::vector<at::Tensor> parts;
  for (int64_t shift = 0; shift < 8; shift += bits)
    parts.push_back(q.floor_divide(int64_t{1} << shift).bitwise_and((int64_t{1} << bits) - 1));
  return at::stack(parts, -1).flatten(1).narrow(1, 0, columns);
}

// Repeats each element of a tensor of scales over its block.
at::Tensor OverBlocks(const at::Tensor& x, const QuantizedMatrix& m) {
  const auto along = [](const at::Tensor& t, int64_t axis, int64_t block, int64_t extent) {
    return t.size(axis) == 1 ? t : t.repeat_interleave(block, axis).narrow(axis, 0, extent);
  };
  return along(along(x, 0, m.block_rows, m.rows), 1, m.block_columns, m.columns);
}

}  // namespace

StoredMatrix TakeStoredMatrix(const Args& a, size_t first) {
  const auto matrix = ReadQuantizedMatrix(a.graph, a.node, first);
  CHECK(matrix.ok()) << matrix.status();
  const at::Tensor q = a.In(first);
  const at::Tensor code =
      matrix->nf4 ? at::tensor(at::ArrayRef<float>(kNf4.data(), kNf4.size())).to(q.device()) : at::Tensor();
  return {q, a.In(first + 1), a.In(first + 2), code, *matrix};
}

namespace {

// Returns the numbers, without zero points and scales.
at::Tensor Numbers(const StoredMatrix& o, at::ScalarType dtype) {
  const at::Tensor stored = Unpacked(o.q, o.matrix.bits, o.matrix.columns);
  if (!o.code.defined()) return stored.to(dtype);
  return o.code.to(dtype).index_select(0, stored.flatten().to(at::kInt)).view(stored.sizes());
}

}  // namespace

at::Tensor ComputeMatrix(const StoredMatrix& o, at::ScalarType dtype) {
  const QuantizedMatrix& m = o.matrix;
  at::Tensor w = Numbers(o, dtype);
  if (o.zero.defined()) {
    const bool packed = !o.zero.is_floating_point();
    w = w - OverBlocks((packed ? Unpacked(o.zero, m.zero_bits, m.scale_columns()) : o.zero).to(dtype), m);
  } else if (m.zero != 0) {
    w = w - m.zero;
  }
  return w * OverBlocks(o.scale.to(dtype), m);
}

StoredMatrix SelectRows(const StoredMatrix& o, int64_t begin, int64_t count) {
  StoredMatrix tile = o;
  tile.matrix.rows = count;
  tile.q = o.q.narrow(0, begin, count);
  if (o.matrix.scale_rows() == 1) return tile;
  const int64_t blocks = (count + o.matrix.block_rows - 1) / o.matrix.block_rows;
  for (at::Tensor* t : {&tile.scale, &tile.zero}) {
    if (t->defined()) *t = t->narrow(0, begin / o.matrix.block_rows, blocks);
  }
  return tile;
}

at::ScalarType WideType(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

namespace {

constexpr int64_t kTileElements = int64_t{1} << 25;  // of a dequantized tile

// Returns the rows of a tile, whole blocks.
int64_t CountTileRows(const QuantizedMatrix& m) {
  const int64_t rows = kTileElements / std::max<int64_t>(m.columns, 1);
  return std::max(m.block_rows >= m.rows ? int64_t{1} : m.block_rows, rows / m.block_rows * m.block_rows);
}

}  // namespace

Run PrepareDequantize(const Args& a) {
  return [o = TakeStoredMatrix(a, 0), y = a.out[0]] { y.copy_(ComputeMatrix(o, WideType(y))); };
}

Run PrepareMatMulDequantized(const Args& a) {
  const bool transposed = a.attrs().Int("transposed") != 0;
  const at::ScalarType factors = a.in[0].is_cuda() ? a.in[0].scalar_type() : WideType(a.in[0]);
  return [=, o = TakeStoredMatrix(a, 1), x = a.in[0], y = a.out[0]] {
    const int64_t rows = o.matrix.rows, most = CountTileRows(o.matrix);
    const at::Tensor left = x.to(factors);
    at::Tensor sum;
    for (int64_t begin = 0; begin < rows || begin == 0; begin += most) {
      const int64_t count = std::min(most, rows - begin);
      const at::Tensor w = ComputeMatrix(SelectRows(o, begin, count), WideType(x)).to(factors);
      if (transposed) {
        y.narrow(-1, begin, count).copy_(at::matmul(left, w.t()));
      } else if (count == rows) {
        y.copy_(at::matmul(left, w));
      } else {
        const at::Tensor part = at::matmul(left.narrow(-1, begin, count), w).to(WideType(x));
        sum = sum.defined() ? sum.add_(part) : part;
      }
    }
    if (sum.defined()) y.copy_(sum);
  };
}

}  // namespace onnxtrain::aten
