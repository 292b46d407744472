// Multiplies float32 matrices with oneDNN's sgemm.
#include <algorithm>

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"

namespace onnxtrain::cpu {
namespace {

// How a matrix with rows or columns in a piece lies in memory, as sgemm takes it.
struct Side {
  char transposed;
  int64_t stride;
};

Side GetSide(const Shape& extents, const Shape& strides) {
  const size_t r = strides.size();
  const bool transposed = strides[r - 1] != 1;
  const int64_t width = extents[transposed ? r - 2 : r - 1];
  return {transposed ? 'T' : 'N', std::max(strides[transposed ? r - 1 : r - 2], width)};
}

void FillWithBias(const Args& args, const Epilogue& e, int64_t rows, int64_t n) {
  Parallel(rows, n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* y = args.out() + row * n;
      for (int64_t j = 0; j < n; ++j) {
        const float bias = e.bias_type == DType::kFloat32 ? args.in(2)[j] : BFloat16ToFloat(args.in<uint16_t>(2)[j]);
        y[j] = e.adds ? args.in(3)[row * n + j] + bias : bias;
      }
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
  const Side a = GetSide(p.a, p.a_strides), b = GetSide(p.b, p.b_strides);
  return {.run = [=, m = p.m, k = p.k, n = p.n](const Args& args) {
    if (e.bias) {
      FillWithBias(args, e, m, n);
    } else if (e.adds) {
      CopyOver(args.in(3), args.out(), m * n);
    }
    const float beta = e.bias || e.adds ? 1 : 0;
    dnnl::error::wrap_c_api(dnnl_sgemm(a.transposed, b.transposed, m, n, k, 1, args.in(0), a.stride, args.in(1),
                                       b.stride, beta, args.out(), n),
                            "cannot multiply float32 matrices");
  }};
}

}  // namespace onnxtrain::cpu
