// Multiplies float32 matrices with oneDNN's sgemm.
#include <algorithm>

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

// Returns the distance of the rows, or of the columns of a transposed matrix.
int64_t GetStride(const Shape& extents, const Shape& strides, bool transposed) {
  const size_t r = strides.size();
  return std::max(strides[transposed ? r - 1 : r - 2], extents[transposed ? r - 2 : r - 1]);
}

// Sets y to what the product is added to: the bias, the old value or their sum.
void Initialize(const Args& args, const Epilogue& e, int64_t rows, int64_t n) {
  if (e.adds) CopyOver(args.in(3), args.out(), rows * n);
  if (!e.bias) return;
  Parallel(rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* y = args.out() + row * n;
      for (int64_t j = 0; j < n; ++j) y[j] = (e.adds ? y[j] : 0) + args.in(2)[j];
    }
  });
}

}  // namespace

bool PrefersSgemm(int64_t m, int64_t k, int64_t n, DType dtype, bool trans_b) {
  constexpr int64_t kManyRows = 256, kFewRows = 32, kLongSum = 512, kWide = 512;
  if (dtype != DType::kFloat32) return false;
  if (m == 1) return true;
  if (n >= kWide) return !trans_b || m >= kManyRows || k < kLongSum;
  return m <= kFewRows && k < kLongSum;
}

Kernel MakeSgemm(const Product& p, Epilogue e) {
  const char trans_a = p.trans_a() ? 'T' : 'N', trans_b = p.trans_b() ? 'T' : 'N';
  const int64_t a_stride = GetStride(p.a, p.a_strides, p.trans_a());
  const int64_t b_stride = GetStride(p.b, p.b_strides, p.trans_b());
  return {.run = [=, m = p.m, k = p.k, n = p.n](const Args& args) {
    Initialize(args, e, m, n);
    const float beta = e.bias || e.adds ? 1 : 0;
    dnnl::error::wrap_c_api(
        dnnl_sgemm(trans_a, trans_b, m, n, k, 1, args.in(0), a_stride, args.in(1), b_stride, beta, args.out(), n),
        "cannot multiply float32 matrices");
  }};
}

}  // namespace onnxtrain::cpu
