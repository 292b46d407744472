#include "backends/cpu/kernels/vector_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

void Lstm(const float* x, const float* c_before, float* gates, float* c, float* h, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const float i = VecSigmoid(x[j] + gates[j]), o = VecSigmoid(x[n + j] + gates[n + j]);
    const float f = VecSigmoid(x[2 * n + j] + gates[2 * n + j]), g = VecTanh(x[3 * n + j] + gates[3 * n + j]);
    gates[j] = i;
    gates[n + j] = o;
    gates[2 * n + j] = f;
    gates[3 * n + j] = g;
    const float cell = f * c_before[j] + i * g;
    c[j] = cell;
    h[j] = o * VecTanh(cell);
  }
}

void LstmGrad(const float* gates, const float* c, const float* c_before, const float* dh, float* carry_h,
              float* carry_c, float* dgates, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const float i = gates[j], o = gates[n + j], f = gates[2 * n + j], g = gates[3 * n + j];
    const float dy = carry_h[j] + dh[j], squashed = VecTanh(c[j]);
    const float dcell = carry_c[j] + dy * o * (1.0f - squashed * squashed);
    dgates[j] = dcell * g * i * (1.0f - i);
    dgates[n + j] = dy * squashed * o * (1.0f - o);
    dgates[2 * n + j] = dcell * c_before[j] * f * (1.0f - f);
    dgates[3 * n + j] = dcell * i * (1.0f - g * g);
    carry_h[j] = 0.0f;
    carry_c[j] = dcell * f;
  }
}

void Gru(const float* x, const float* recurrent, const float* bias, const float* h_before, float* gates, float* h,
         int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const float z = VecSigmoid(x[j] + (bias[j] + recurrent[j])),
                r = VecSigmoid(x[n + j] + (bias[n + j] + recurrent[n + j]));
    const float q = bias[2 * n + j] + recurrent[2 * n + j];
    const float candidate = VecTanh(x[2 * n + j] + r * q);
    gates[j] = z;
    gates[n + j] = r;
    gates[2 * n + j] = candidate;
    gates[3 * n + j] = q;
    h[j] = (1.0f - z) * candidate + z * h_before[j];
  }
}

void GruGrad(const float* gates, const float* h_before, const float* dh, float* carry, float* dx, float* dr,
             int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const float z = gates[j], r = gates[n + j], candidate = gates[2 * n + j], q = gates[3 * n + j];
    const float dy = carry[j] + dh[j];
    const float dn = dy * (1.0f - z) * (1.0f - candidate * candidate);
    const float dz = dy * (h_before[j] - candidate) * z * (1.0f - z), dreset = dn * q * r * (1.0f - r);
    dx[j] = dz;
    dx[n + j] = dreset;
    dx[2 * n + j] = dn;
    dr[j] = dz;
    dr[n + j] = dreset;
    dr[2 * n + j] = dn * r;
    carry[j] = dy * z;
  }
}

void RnnTanh(const float* x, float* h, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) h[j] = VecTanh(x[j] + h[j]);
}

void RnnRelu(const float* x, float* h, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const float sum = x[j] + h[j];
    h[j] = sum > 0.0f ? sum : sum != sum ? sum : 0.0f;
  }
}

void RnnTanhGrad(const float* h, const float* dh, float* carry, float* dx, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    dx[j] = (carry[j] + dh[j]) * (1.0f - h[j] * h[j]);
    carry[j] = 0.0f;
  }
}

void RnnReluGrad(const float* h, const float* dh, float* carry, float* dx, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const float dy = carry[j] + dh[j];
    dx[j] = h[j] > 0.0f ? dy : 0.0f;
    carry[j] = 0.0f;
  }
}

void AddTo(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) y[j] += x[j];
}

}  // namespace

const RecurrentSimd& RecurrentTable() {
  static constexpr RecurrentSimd kTable = {Lstm, LstmGrad, Gru, GruGrad, {RnnTanh, RnnRelu}, {RnnTanhGrad, RnnReluGrad},
                                           AddTo};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
