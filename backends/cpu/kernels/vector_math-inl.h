// Elementary functions without branches. Exp, Expm1, Log, Log1p, Tanh and Erf are within 2 units in the last place of
// the true value, Sigmoid and Softplus within 2.5. Products are fused with sums if the instruction set can: results are
// bitwise equal on machines that run the same instruction set.
//
// F is float, in loops that the compiler vectorizes (a loop with a call stays scalar, so all are inlined), or VecF32
// (vec-inl.h). Both compute the same bits.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_VECTOR_MATH_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_VECTOR_MATH_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_VECTOR_MATH_INL_H_
#endif

#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// --- Functions of float64 call the C library.

#define DOUBLE(NAME, FUNCTION) \
  [[gnu::always_inline]] inline double Vec##NAME(double x) { return __builtin_##FUNCTION(x); }
DOUBLE(Exp, exp)
DOUBLE(Expm1, expm1)
DOUBLE(Log, log)
DOUBLE(Log1p, log1p)
DOUBLE(Tanh, tanh)
DOUBLE(Erf, erf)
DOUBLE(Tan, tan)
DOUBLE(Cosh, cosh)
[[gnu::always_inline]] inline double Pow(double a, double b) { return __builtin_pow(a, b); }
[[gnu::always_inline]] inline float Pow(float a, float b) { return __builtin_powf(a, b); }
[[gnu::always_inline]] inline double Fmod(double a, double b) { return __builtin_fmod(a, b); }
[[gnu::always_inline]] inline float Fmod(float a, float b) { return __builtin_fmodf(a, b); }

// --- Highway's functions (hwy/contrib/math), within the range where they are accurate.

// Returns y for the lanes inside, else the result of the C library's function.
template <float (*kFunction)(float)>
[[gnu::noinline]] VecF32 CallOutside(MaskF32 inside, VecF32 y, VecF32 x) {
  float lanes[kVecLanes];
  x.Store(lanes);
  for (float& lane : lanes) lane = kFunction(lane);
  return Select(inside, y, VecF32::Load(lanes));
}
template <float (*kFunction)(float)>
[[gnu::always_inline]] inline VecF32 OrCall(MaskF32 inside, VecF32 y, VecF32 x) {
  return __builtin_expect(hn::AllTrue(VecF32::Tag(), inside.m), 1) ? y : CallOutside<kFunction>(inside, y, x);
}

#define HIGHWAY(NAME, FUNCTION, INSIDE)                                              \
  DOUBLE(NAME, FUNCTION)                                                             \
  [[gnu::always_inline]] inline VecF32 Vec##NAME(VecF32 x) {                         \
    return OrCall<__builtin_##FUNCTION##f>(INSIDE, hn::NAME(VecF32::Tag(), x.v), x); \
  }
HIGHWAY(Cos, cos, VecAbs(x) < 39000.0f)
HIGHWAY(Asin, asin, VecAbs(x) < 1.0f)
HIGHWAY(Acos, acos, VecAbs(x) < 1.0f)
HIGHWAY(Atan, atan, x == x)
HIGHWAY(Sinh, sinh, VecAbs(x) < 88.0f)
HIGHWAY(Asinh, asinh, VecAbs(x) < kInf)
HIGHWAY(Acosh, acosh, (x > 1.0f) & (x < kInf))
HIGHWAY(Atanh, atanh, VecAbs(x) < 1.0f)
#undef HIGHWAY

// Highway returns 0 for sin −0.
DOUBLE(Sin, sin)
[[gnu::always_inline]] inline VecF32 VecSin(VecF32 x) {
  const VecF32 y = hn::Sin(VecF32::Tag(), x.v);
  return OrCall<__builtin_sinf>(VecAbs(x) < 39000.0f, Select(x == 0.0f, x, y), x);
}
[[gnu::always_inline]] inline VecF32 VecTan(VecF32 x) {
  const VecF32 y = VecF32(hn::Sin(VecF32::Tag(), x.v)) / VecF32(hn::Cos(VecF32::Tag(), x.v));
  return OrCall<__builtin_tanf>(VecAbs(x) < 39000.0f, Select(x == 0.0f, x, y), x);
}
#undef DOUBLE

#define ALWAYS_INLINE   \
  template <typename F> \
  [[gnu::always_inline]] inline

// Returns Σ coefficientᵢ·xⁱ; the constant coefficient comes first.
ALWAYS_INLINE F Poly(F, float c) { return c; }
template <typename F, typename... Rest>
[[gnu::always_inline]] inline F Poly(F x, float c, Rest... rest) {
  return Fma(Poly(x, rest...), x, c);
}

// ln 2 = kLn2High + kLn2Low; the product of kLn2High and an integer below 2^9 is exact.
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

template <typename F>
struct Reduced {
  F r;  // x − n·ln 2, |r| ≤ ln 2 / 2
  UintOf<F> n;
};

ALWAYS_INLINE Reduced<F> ReduceByLn2(F x) {
  const F shifted = Fma(x, 1.44269504088896341f, 12582912.0f);  // 1.5·2^23: the low bits are the rounded integer
  const F n = shifted - 12582912.0f;
  return {Fma(n, -kLn2Low, Fma(n, -kLn2High, x)), Bits(shifted) - 0x4b400000u};
}

// Returns 2^n for −126 ≤ n ≤ 127.
[[gnu::always_inline]] inline auto PowerOf2(auto n) { return FromBits(ShiftLeft<23>(n + 127u)); }

// Returns (e^r − 1 − r)/r² for |r| ≤ ln 2 / 2, a minimax fit. Even and odd powers form two short, independent chains.
ALWAYS_INLINE F ExpTail(F r) {
  const F z = r * r;
  return Fma(Poly(z, 0.16666666f, 0.0083333896f, 0.00019845879f), r, Poly(z, 0.5f, 0.041666362f, 0.0013940626f));
}
ALWAYS_INLINE F SmallExpm1(F r) { return Fma(r * r, ExpTail(r), r); }

ALWAYS_INLINE F VecExp(F x) {
  const F low = Select(x < -104.0f, -104.0f, x);
  const Reduced<F> d = ReduceByLn2<F>(Select(low > 89.0f, 89.0f, low));
  const UintOf<F> half = HalveInt(d.n);  // scales in two steps: 2^n may be out of range where the result is not
  return (1.0f + SmallExpm1(d.r)) * PowerOf2(half) * PowerOf2(d.n - half);
}

// Returns e^x for x in [−87, 0] or NaN.
ALWAYS_INLINE F VecExpFiniteRange(F x) {
  const Reduced<F> d = ReduceByLn2(x);
  return (1.0f + SmallExpm1(d.r)) * PowerOf2(d.n);
}

ALWAYS_INLINE F VecExpm1(F x) {
  const F low = Select(x < -30.0f, -30.0f, x);
  const Reduced<F> d = ReduceByLn2<F>(Select(low > 80.0f, 80.0f, low));
  const F scale = PowerOf2(d.n);
  const F result = Fma(scale, SmallExpm1(d.r), scale - 1.0f);
  return Select(x > 80.0f, VecExp(x), result);
}

// Returns log(1 + f) + e·ln 2 for 1 + f in [√½, √2).
ALWAYS_INLINE F VecLogFromParts(F f, F e) {
  const F s = f / (2.0f + f), z = s * s;
  const F p = Poly(z, 2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9, 2.0f / 11);
  const F square = 0.5f * f * f;
  return Fma(e, kLn2High, f - (square - Fma(s, Fma(p, z, square), e * kLn2Low)));
}

ALWAYS_INLINE F VecLog(F x) {
  const auto tiny = x < 1.17549435e-38f;
  const UintOf<F> above = Bits(F(Select(tiny, x * 8388608.0f, x))) - 0x3f3504f3u;  // minus the bits of √½
  const F e = ConvertToFloat(Exponent(above));
  const F m = FromBits((above & 0x7fffffu) + 0x3f3504f3u);
  const F result = VecLogFromParts<F>(m - 1.0f, e - F(Select(tiny, F(23.0f), F(0.0f))));
  const F finite = Select(x > 0.0f, result, F(Select(x == 0.0f, F(-kInf), F(__builtin_nanf("")))));
  return Select(x < kInf, finite, x);  // keeps +inf and NaN
}

ALWAYS_INLINE F VecLog1p(F x) {
  const F u = 1.0f + x;
  const F lost = x - (u - 1.0f);  // the rounding error of 1 + x
  const F log = VecLog(u), result = Select((u > 0.0f) & (u < kInf), log + lost / u, log);
  return Select(u == 1.0f, x, result);
}

// Computes x + x³·P(x²), a minimax fit, for |x| < 0.65, else 1 − 2/(e^2|x| + 1).
ALWAYS_INLINE F VecTanh(F x) {
  const F a = VecAbs(x), t = a * a;
  const F p = Poly(t, -0.3333326f, 0.13330831f, -0.053688023f, 0.02046942f, -0.0055151642f);
  const F e = VecExpFiniteRange<F>(-2.0f * F(Select(a > 10.0f, 10.0f, a)));  // 1/e^2|x|
  const F far = CopySign<F>(Fma(-2.0f, e / (1.0f + e), 1.0f), x);
  return Select(a < 0.65f, Fma(x * t, p, x), far);
}

ALWAYS_INLINE F VecSigmoid(F x) { return 1.0f / (1.0f + VecExp(-x)); }

// Computes x·P(x²) near zero, else 1 − e^−Q(|x|) with Q fitted to −log erfc. Both polynomials are minimax fits
// (Lawson's algorithm) with an error below 1e-9.
ALWAYS_INLINE F VecErf(F x) {
  const F a = VecAbs(x), t = a * a;
  const F p = Poly(t, 0.1283792f, -0.37612635f, 0.11283697f, -0.0268595f, 0.005201286f, -0.0008145597f, 8.382388e-05f);
  const F b = Select(a > 4.0f, 4.0f, a), z = b * b;
  const F odd = Poly(z, 1.1295149f, 0.10828009f, 0.004171063f, 2.1095051e-05f);
  const F q = Fma(odd, b, Poly(z, -0.00017468445f, 0.6333469f, -0.025119428f, -0.00043446262f));
  const F far = CopySign<F>(1.0f - VecExpFiniteRange(-q), x);
  return Select(a < 0.92f, Fma(x, p, x), far);
}

constexpr float kInvSqrt2Pi = 0.39894228040143268f;
constexpr float kSqrt2OverPi = 0.79788456080286536f;

// Returns e^−x²/2, or zero if that is no normal number.
ALWAYS_INLINE F VecGaussian(F x) {
  const F z = -0.5f * x * x;
  return Select(z < -87.0f, F(0.0f), VecExpFiniteRange<F>(z));
}

// Returns the normal distribution function Φ(x); `bell` is VecGaussian(x). Computes Φ(−|x|) = bell·P(|x|), with P
// fitted to e^x²/2·Φ(−x) on [0, 5.6] by Lawson's algorithm with weights. The error is 5e-9, and 1e-5 relative to Φ down
// to x = −4, where 1 + erf would cancel.
ALWAYS_INLINE F VecNormalCdf(F x, F bell) {
  const F a = VecAbs(x), u = F(Select(a > 5.6f, 5.6f, a)) - 2.0f, z = u * u;
  const F odd = Poly(z, -0.062738344f, -0.006703963f, -0.00055067794f, -3.6992798e-05f, -2.0554262e-06f,
                     -1.1059297e-07f, -6.1185443e-09f);
  const F even =
      Poly(z, 0.16810201f, 0.021312464f, 0.001977108f, 0.00014450456f, 9.7251013e-06f, 2.859959e-07f, 4.6253447e-08f);
  const F tail = bell * Fma(odd, u, even);
  return Select(x < 0.0f, tail, 1.0f - tail);
}

ALWAYS_INLINE F VecGelu(F x) { return x * VecNormalCdf<F>(x, VecGaussian(x)); }
ALWAYS_INLINE F VecGeluDerivative(F x) {
  const F bell = VecGaussian(x);
  return Fma(kInvSqrt2Pi * x, bell, VecNormalCdf<F>(x, bell));
}
ALWAYS_INLINE F TanhGeluInner(F x) { return VecTanh<F>(kSqrt2OverPi * Fma(0.044715f * x * x, x, x)); }
ALWAYS_INLINE F VecTanhGelu(F x) { return 0.5f * x * (1.0f + TanhGeluInner(x)); }
ALWAYS_INLINE F VecTanhGeluDerivative(F x) {
  const F t = TanhGeluInner(x);
  const F inner = kSqrt2OverPi * Fma(3.0f * 0.044715f * x, x, 1.0f);
  return Fma(0.5f * x * Fma(-t, t, 1.0f), inner, Fma(0.5f, t, 0.5f));
}
[[gnu::always_inline]] inline VecF32 VecCosh(VecF32 x) {
  const VecF32 a = VecAbs(x), e = VecExp(a);
  return OrCall<__builtin_coshf>(a < 88.0f, 0.5f * e + 0.5f / e, x);
}
ALWAYS_INLINE F VecSoftplus(F x) { return F(Select(x > 0.0f, x, 0.0f)) + VecLog1p(VecExp(-VecAbs(x))); }

#undef ALWAYS_INLINE

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
