// Matrix products, determinants and cofactors.
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "backends/torch/kernels/dequantize.h"
#include "backends/torch/products/wide_matmul.h"
#include "frontend/ops/leading_directions.h"

namespace onnxtrain::aten {
namespace {

Run Det(const Args& a) {
  return [x = a.in[0], y = a.out[0]] { y.copy_(at::linalg_det(x)); };
}

// Returns, for each element, the product of all others along the last axis.
at::Tensor ProductOfOthers(const at::Tensor& s) {
  const at::Tensor one = at::ones_like(s.narrow(-1, 0, 1));
  const int64_t n = s.size(-1);
  const at::Tensor before = at::cat({one, at::cumprod(s, -1).narrow(-1, 0, n - 1)}, -1);
  const at::Tensor behind = at::cumprod(at::flip(s, {-1}), -1).narrow(-1, 0, n - 1);
  return before * at::flip(at::cat({one, behind}, -1), {-1});
}

// Computes cofactors as det U·det V·U·S'·Vᵀ for x = U·S·Vᵀ, where S' has the products of all other singular values.
// Nothing is divided, so singular matrices need no special case.
Run Cofactor(const Args& a) {
  return [x = a.in[0], y = a.out[0]] {
    if (y.numel() == 0) return;
    const auto [u, s, vt] = at::linalg_svd(x, true);
    const at::Tensor sign = (at::linalg_det(u) * at::linalg_det(vt)).unsqueeze(-1).unsqueeze(-1);
    y.copy_(at::matmul(u * ProductOfOthers(s).unsqueeze(-2), vt).mul_(sign));
  };
}

// Waits for the device to read the step. Most steps only copy.
Run PrepareLeadingDirections(const Args& a) {
  const int64_t every = a.attrs().Int("every");
  return [every, x = a.in[0], previous = a.in[1], step = a.in[2], y = a.out[0]] {
    if (y.numel() == 0) return;
    const bool due = static_cast<int64_t>(step.item<double>()) % every == 0;
    if (!due || !at::isfinite(x).all().item<bool>()) return y.copy_(previous), void();
    const at::Tensor tall = ProjectsColumns(Shape(x.sizes().begin(), x.sizes().end())) ? x : x.t();
    const at::Tensor directions = std::get<2>(at::linalg_svd(tall, false)).narrow(0, 0, y.size(1)).t();
    const at::Tensor largest = directions.gather(0, directions.abs().argmax(0, true));
    y.copy_(at::where(largest.lt(0), directions.neg(), directions));
  };
}

}  // namespace

std::span<const NamedKernel> DeterminantKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Det", {Det}},
      {"Cofactor", {Cofactor}},
      {"LeadingDirections", {PrepareLeadingDirections}},
  };
  return kKernels;
}

namespace {

at::Tensor Operand(const at::Tensor& x, bool transposed) { return transposed ? x.transpose(-2, -1) : x; }

int64_t BatchSize(const at::Tensor& x) {
  int64_t batch = 1;
  for (int64_t i = 0; i + 2 < x.dim(); ++i) batch *= x.size(i);
  return batch;
}

at::Tensor Matrix(const at::Tensor& x) { return x.dim() == 2 ? x : x.flatten(0, -3).squeeze(0); }

// Tensor cores load 16 bytes at a time, and cuBLAS uses slower kernels for unaligned rows (cuBLAS documentation,
// "Tensor Core Usage"). Matrix products of at least kLeastPadded multiplications pad such operands with zeros.
constexpr int64_t kHalvesPerLoad = 8, kLeastPadded = int64_t{1} << 28;  // multiplications

int64_t PadExtent(int64_t n) { return (n + kHalvesPerLoad - 1) / kHalvesPerLoad * kHalvesPerLoad; }

// Returns the extent of the contiguous axis.
int64_t InnerExtent(const at::Tensor& x) { return x.stride(1) == 1 ? x.size(1) : x.size(0); }

bool WantsPadding(const at::Tensor& a, const at::Tensor& b) {
  const int64_t columns = b.size(1);
  bool even = true;
  for (int64_t extent : {InnerExtent(a), InnerExtent(b), columns}) even &= extent % kHalvesPerLoad == 0;
  return a.is_cuda() && a.element_size() == 2 && !even && a.size(0) * a.size(1) * columns >= kLeastPadded;
}

// Returns a copy of x with rows and columns padded with zeros, in the same memory order; x itself if it needs no pads.
at::Tensor Padded(const at::Tensor& x) {
  const int64_t rows = PadExtent(x.size(0)), columns = PadExtent(x.size(1));
  if (rows == x.size(0) && columns == x.size(1)) return x;
  const bool transposed = x.stride(0) == 1 && x.stride(1) != 1;
  const at::Tensor padded =
      transposed ? at::empty({columns, rows}, x.options()).t() : at::empty({rows, columns}, x.options());
  padded.narrow(0, x.size(0), rows - x.size(0)).zero_();
  padded.narrow(1, x.size(1), columns - x.size(1)).zero_();
  padded.narrow(0, 0, x.size(0)).narrow(1, 0, x.size(1)).copy_(x);
  return padded;
}

using Multiply = void (*)(at::Tensor y, const at::Tensor& a, const at::Tensor& b);

void MultiplyNarrow(at::Tensor y, const at::Tensor& a, const at::Tensor& b) { at::mm_out(y, a, b); }

// Multiplies padded copies.
Run PaddedProduct(const at::Tensor& a, const at::Tensor& b, const at::Tensor& y, Multiply multiply) {
  const int64_t rows = PadExtent(y.size(0)), columns = PadExtent(y.size(1));
  if (rows == y.size(0) && columns == y.size(1)) return [=] { multiply(y, Padded(a), Padded(b)); };
  return [=] {
    const at::Tensor padded = at::empty({rows, columns}, y.options());
    multiply(padded, Padded(a), Padded(b));
    y.copy_(padded.narrow(0, 0, y.size(0)).narrow(1, 0, y.size(1)));
  };
}

Run Product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& y, Multiply multiply = MultiplyNarrow) {
  if (WantsPadding(a, b)) return PaddedProduct(a, b, y, multiply);
  return [=] { multiply(y, a, b); };
}

// Multiplies a and b, whose batch axes broadcast to those of y. If a view cannot express the broadcast, each run makes
// a copy.
Run BatchedProduct(const at::Tensor& a, const at::Tensor& b, const at::Tensor& y) {
  std::vector<int64_t> batch(y.sizes().begin(), y.sizes().end() - 2), sizes_a = batch, sizes_b = batch;
  sizes_a.insert(sizes_a.end(), {a.size(-2), a.size(-1)});
  sizes_b.insert(sizes_b.end(), {b.size(-2), b.size(-1)});
  const at::Tensor wide_a = a.expand(sizes_a), wide_b = b.expand(sizes_b);
  const int64_t n = BatchSize(y);
  auto flat = [n](const at::Tensor& x) { return x.reshape({n, x.size(-2), x.size(-1)}); };
  // Reshaping a broadcast operand copies it, so it must happen in each run to see the current values.
  const bool views = BatchSize(a) == n && BatchSize(b) == n;
  const at::Tensor flat_y = y.view({n, y.size(-2), y.size(-1)});
  if (!views) {
    return [=, y = flat_y]() mutable { at::bmm_out(y, flat(wide_a), flat(wide_b)); };
  }
  return [y = flat_y, a = flat(wide_a), b = flat(wide_b)]() mutable { at::bmm_out(y, a, b); };
}

Run MatMul(const Args& args) {
  const bool trans_a = args.attrs().Int("trans_a") != 0, trans_b = args.attrs().Int("trans_b") != 0;
  const at::Tensor a = Operand(args.in[0], trans_a), b = Operand(args.in[1], trans_b), y = args.out[0];
  if (y.numel() == 0) return {};
  if (BatchSize(b) == 1 && !trans_a) {
    // All batches share b, so the rows of all matrices of a form one tall matrix.
    return Product(a.reshape({BatchSize(a) * a.size(-2), a.size(-1)}), Matrix(b),
                   y.view({BatchSize(y) * y.size(-2), y.size(-1)}));
  }
  if (BatchSize(y) == 1) return Product(Matrix(a), Matrix(b), Matrix(y));
  return BatchedProduct(a, b, y);
}

// Multiplies half precision into float32. cuBLAS accumulates in float32 and stores the requested type.
void MultiplyWide(at::Tensor y, const at::Tensor& a, const at::Tensor& b) {
#if ONNXTRAIN_WIDE_PRODUCTS
  if (a.is_cuda()) {
    at::mm_out(y, a, b, at::kFloat);
    return;
  }
#endif
  at::mm_out(y, a.to(at::kFloat), b.to(at::kFloat));
}

Run WideMatMul(const Args& args) {
  if (args.out[0].numel() == 0) return {};
  return Product(Operand(args.in[0], args.attrs().Int("trans_a") != 0),
                 Operand(args.in[1], args.attrs().Int("trans_b") != 0), args.out[0], MultiplyWide);
}

}  // namespace

std::span<const NamedKernel> MatmulKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"MatMul", {MatMul, Types::kNumber}},
      {kWideMatMul, {WideMatMul, Types::kAny}},
      {"Dequantize", {PrepareDequantize, Types::kAny}},
      {"QuantizeDynamic", {PrepareQuantizeDynamic, Types::kAny}},
      {"DequantizeDynamic", {PrepareDequantizeDynamic, Types::kAny}},
      {"MatMulDequantized", {PrepareMatMulDequantized, Types::kAny}},
      {"GroupedMatMul", {PrepareGroupedMatMul, Types::kAny}},
      {"GroupedMatMulWeightGrad", {PrepareGroupedMatMulWeightGrad, Types::kAny}}};
  return kKernels;
}

}  // namespace onnxtrain::aten
