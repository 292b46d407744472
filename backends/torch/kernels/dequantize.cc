// Matrices of stored numbers, and products with them. A product dequantizes its matrix to scratch memory, which lives
// no longer than the product.
#include "backends/torch/kernels/dequantize.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "frontend/base/log.h"
#include "frontend/ops/dequantize.h"

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

struct Operands {
  at::Tensor q, scale, zero;
  at::Tensor code;  // kNf4 on the device; undefined for integers and floats
  QuantizedMatrix matrix;
};

Operands TakeOperands(const Args& a, size_t first) {
  const auto matrix = ReadQuantizedMatrix(a.graph, a.node, first);
  CHECK(matrix.ok()) << matrix.status();
  const at::Tensor q = a.In(first);
  const at::Tensor code =
      matrix->nf4 ? at::tensor(at::ArrayRef<float>(kNf4.data(), kNf4.size())).to(q.device()) : at::Tensor();
  return {q, a.In(first + 1), a.In(first + 2), code, *matrix};
}

// Returns the numbers, without zero points and scales.
at::Tensor Numbers(const Operands& o, at::ScalarType dtype) {
  const at::Tensor stored = Unpacked(o.q, o.matrix.bits, o.matrix.columns);
  if (!o.code.defined()) return stored.to(dtype);
  return o.code.to(dtype).index_select(0, stored.flatten().to(at::kInt)).view(stored.sizes());
}

at::Tensor ComputeMatrix(const Operands& o, at::ScalarType dtype) {
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

// Half precision has too few digits for the differences.
at::ScalarType WideType(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace

Run PrepareDequantize(const Args& a) {
  return [o = TakeOperands(a, 0), y = a.out[0]] { y.copy_(ComputeMatrix(o, WideType(y))); };
}

Run PrepareMatMulDequantized(const Args& a) {
  const bool transposed = a.attrs().Int("transposed") != 0;
  const at::ScalarType factors = a.in[0].is_cuda() ? a.in[0].scalar_type() : WideType(a.in[0]);
  return [=, o = TakeOperands(a, 1), x = a.in[0], y = a.out[0]] {
    const at::Tensor w = ComputeMatrix(o, WideType(x)).to(factors);
    y.copy_(at::matmul(x.to(factors), transposed ? w.t() : w));
  };
}

}  // namespace onnxtrain::aten
