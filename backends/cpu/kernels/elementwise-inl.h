#include <type_traits>

#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "backends/cpu/kernels/vector_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// --- Casts between float32 and 16-bit floats: UnarySpan functions, but y must not be x.

void WidenBFloat16(const void* x, void* y, int64_t n, const float*) {
  const auto* in = static_cast<const uint16_t*>(x);
  auto* out = static_cast<float*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = FromBFloat16(in[i]);
}

void NarrowBFloat16(const void* x, void* y, int64_t n, const float*) {
  const auto* in = static_cast<const float*>(x);
  auto* out = static_cast<uint16_t*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint16_t>(RoundToBFloat16(in[i]));
}

constexpr uint32_t kSign = 0x80000000, kFloatInfinity = 0x7f800000;

// Rebiases the exponent by a multiplication, which also handles denormal numbers.
void WidenHalf(const void* x, void* y, int64_t n, const float*) {
  const auto* in = static_cast<const uint16_t*>(x);
  auto* out = static_cast<float*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = in[i] & 0x7fffu, sign = static_cast<uint32_t>(in[i] & 0x8000u) << 16;
    const uint32_t finite = Bits(FromBits(magnitude << 13) * 0x1p112F), special = kFloatInfinity | (magnitude << 13);
    out[i] = FromBits(sign | (magnitude >= 0x7c00 ? special : finite));
  }
}

// Rounds float32 to float16, to nearest even; keeps NaN. Rounds denormal results by adding a number whose last bit has
// their weight.
void NarrowHalf(const void* x, void* y, int64_t n, const float*) {
  constexpr uint32_t kOverflow = 0x477ff000, kSmallestNormal = 0x38800000, kMagic = 0x3f000000;
  const auto* in = static_cast<const float*>(x);
  auto* out = static_cast<uint16_t*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = Bits(in[i]), magnitude = bits & ~kSign;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    const uint32_t tiny = Bits(FromBits(magnitude) + FromBits(kMagic)) - kMagic;
    const uint32_t special = magnitude > kFloatInfinity ? 0x7e00 : 0x7c00;
    const uint32_t half = magnitude >= kOverflow ? special : magnitude < kSmallestNormal ? tiny : normal;
    out[i] = static_cast<uint16_t>(half | (bits & kSign) >> 16);
  }
}

// Clips x; if low > high, returns high.
template <typename F>
[[gnu::always_inline]] inline F Within(F x, std::type_identity_t<F> low, std::type_identity_t<F> high) {
  const F above = Select(x < low, low, x);
  return Select(above > high, high, above);
}

// --- Functions of rows from functions of numbers. `Op` is a stateless function of VecF32 and double; every call is
// inlined.

template <typename Op>
[[gnu::flatten]] void Unary(const void* x, void* y, int64_t n, const float* p) {
  ForVectors<1>({static_cast<const float*>(x)}, n, static_cast<float*>(y),
                [p](const VecF32* in) { return VecF32(Op()(in[0], p)); });
}

template <typename Op, typename T, typename Y>
[[gnu::flatten]] void UnaryLoop(const void* x, void* y, int64_t n, const T* p) {
  const auto* in = static_cast<const T*>(x);
  auto* out = static_cast<Y*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Y>(Op()(in[i], p));
}

template <typename Op, int kStepA, int kStepB>
[[gnu::flatten]] void Binary(const void* a, const void* b, void* y, int64_t n) {
  const auto *left = static_cast<const float*>(a), *right = static_cast<const float*>(b);
  auto* out = static_cast<float*>(y);
  if constexpr (kStepA == 0) {
    ForVectors<1>({right}, n, out, [a0 = VecF32(left[0])](const VecF32* in) { return VecF32(Op()(a0, in[0])); });
  } else if constexpr (kStepB == 0) {
    ForVectors<1>({left}, n, out, [b0 = VecF32(right[0])](const VecF32* in) { return VecF32(Op()(in[0], b0)); });
  } else {
    ForVectors<2>({left, right}, n, out, [](const VecF32* in) { return VecF32(Op()(in[0], in[1])); });
  }
}

template <typename Op, typename T, typename Y, int kStepA, int kStepB>
[[gnu::flatten]] void BinaryLoop(const void* a, const void* b, void* y, int64_t n) {
  const auto *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
  auto* out = static_cast<Y*>(y);
  const T a0 = left[0], b0 = right[0];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Y>(Op()(kStepA ? left[i] : a0, kStepB ? right[i] : b0));
}

template <typename Op>
constexpr BinarySpans kVectorSpans = {&Binary<Op, 1, 1>, &Binary<Op, 1, 0>, &Binary<Op, 0, 1>};
template <typename Op, typename T, typename Y>
constexpr BinarySpans kLoopSpans = {&BinaryLoop<Op, T, Y, 1, 1>, &BinaryLoop<Op, T, Y, 1, 0>,
                                    &BinaryLoop<Op, T, Y, 0, 1>};

// --- Entries: name, cost, function.

// Makes an entry that computes in vectors of float32 and in a loop over float64.
template <typename Op>
constexpr UnaryEntry Function(const char* name, int64_t cost, Op) {
  return {name, cost, &Unary<Op>, &UnaryLoop<Op, double, double>};
}
template <typename Op>
constexpr BinaryEntry Function2(const char* name, int64_t cost, Op) {
  return {kVectorSpans<Op>, name, cost, kLoopSpans<Op, double, double>};
}

// Makes an entry for float32 alone; the operator is decomposed for float64.
template <typename Op>
constexpr UnaryEntry Float32(const char* name, int64_t cost, Op) {
  return {name, cost, &Unary<Op>};
}
template <typename Op>
constexpr BinaryEntry Float32Pair(const char* name, int64_t cost, Op) {
  return {kVectorSpans<Op>, name, cost};
}

// Makes an entry that loops over floats, too: for functions of the C library, and for comparisons (Y is uint8_t), which
// the compiler vectorizes.
template <typename Y, typename Op>
constexpr UnaryEntry PlainLoop(const char* name, int64_t cost, Op) {
  constexpr bool kPredicate = std::is_same_v<Y, uint8_t>;
  return {name, cost, &UnaryLoop<Op, float, Y>, &UnaryLoop<Op, double, std::conditional_t<kPredicate, Y, double>>};
}
template <typename Y, typename Op>
constexpr BinaryEntry PlainLoop2(const char* name, int64_t cost, Op) {
  constexpr bool kPredicate = std::is_same_v<Y, uint8_t>;
  return {kLoopSpans<Op, float, Y>, name, cost, kLoopSpans<Op, double, std::conditional_t<kPredicate, Y, double>>};
}

void SelectFloats(const void* c, const void* a, const void* b, void* y, int64_t n) {
  const auto* condition = static_cast<const uint8_t*>(c);
  const auto *left = static_cast<const float*>(a), *right = static_cast<const float*>(b);
  auto* out = static_cast<float*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? left[i] : right[i];
}

// kOp combines b and c: '*', '/', or 0 for b alone.
template <char kOp>
void Blend(const float* a, float s, const float* b, const float* c, float t, float* y, int64_t n) {
  const auto blend = [s, t](const VecF32* in) {
    const VecF32 second = kOp == '*' ? in[1] * in[2] : kOp == '/' ? in[1] / in[2] : in[1];
    return s * in[0] + t * second;
  };
  if constexpr (kOp == 0) {
    ForVectors<2>({a, b}, n, y, blend);
  } else {
    ForVectors<3>({a, b, c}, n, y, blend);
  }
}

template <char kOp>
void Root(const float* x, float s, float t, float* y, int64_t n) {
  ForVectors<1>({x}, n, y, [s, t](const VecF32* in) {
    const VecF32 root = hn::Sqrt(in[0].v);
    return (kOp == '*' ? root * s : root / s) + t;
  });
}

void BoolToFloat(const void* x, void* y, int64_t n, const float* p) {
  const auto* in = static_cast<const uint8_t*>(x);
  auto* out = static_cast<float*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
}

// Exchanges the halves of rows of p[0] elements and negates the first (p[1] = 0) or the second half of the result. y
// may be x: both halves of a vector are read before they are written.
void RotateHalves(const void* x, void* y, int64_t n, const float* p) {
  const auto size = static_cast<int64_t>(p[0]), half = size / 2;
  const float sign = p[1] == 0 ? -1.0f : 1.0f;
  for (int64_t row = 0; row < n; row += size) {
    const float* in = static_cast<const float*>(x) + row;
    float* out = static_cast<float*>(y) + row;
    int64_t j = 0;
    for (; j + kVecLanes <= half; j += kVecLanes) {
      const VecF32 a = VecF32::Load(in + j), b = VecF32::Load(in + half + j);
      (b * sign).Store(out + j);
      (a * -sign).Store(out + half + j);
    }
    for (; j < half; ++j) {
      const float a = in[j], b = in[half + j];
      out[j] = b * sign;
      out[half + j] = a * -sign;
    }
  }
}

// p has the numeric attributes in the order of the operator's row.
#define FN(EXPRESSION) [](auto x, [[maybe_unused]] const auto* p) { return EXPRESSION; }
#define FN2(EXPRESSION) [](auto a, auto b) { return EXPRESSION; }

constexpr UnaryEntry kUnary[] = {
    Function("Neg", 2, FN(-x)),
    Function("Abs", 2, FN(VecAbs(x))),
    Function("Sign", 8, FN(Select(x > 0.0f, 1.0f, Select(x < 0.0f, -1.0f, x)))),
    Function("Exp", 8, FN(VecExp(x))),
    Function("Log", 8, FN(VecLog(x))),
    Function("Log1p", 8, FN(VecLog1p(x))),
    Function("Expm1", 8, FN(VecExpm1(x))),
    Function("Sqrt", 2, FN(VecSqrt(x))),
    Function("Rsqrt", 8, FN(1.0f / VecSqrt(x))),
    Function("Reciprocal", 8, FN(1.0f / x)),
    Function("Sin", 8, FN(VecSin(x))),
    Function("Cos", 8, FN(VecCos(x))),
    Function("Tan", 8, FN(VecTan(x))),
    Function("Asin", 8, FN(VecAsin(x))),
    Function("Acos", 8, FN(VecAcos(x))),
    Function("Atan", 8, FN(VecAtan(x))),
    Function("Sinh", 8, FN(VecSinh(x))),
    Function("Cosh", 8, FN(VecCosh(x))),
    Function("Asinh", 8, FN(VecAsinh(x))),
    Function("Acosh", 8, FN(VecAcosh(x))),
    Function("Atanh", 8, FN(VecAtanh(x))),
    Function("Tanh", 8, FN(VecTanh(x))),
    Function("Sigmoid", 8, FN(VecSigmoid(x))),
    Function("Relu", 2, FN(Select(x < 0.0f, 0.0f, x))),
    Function("Softplus", 8, FN(VecSoftplus(x))),
    Function("Softsign", 8, FN(x / (1.0f + VecAbs(x)))),
    Function("HardSwish", 8, FN(x* Select(x < -3.0f, 0.0f, Select(x > 3.0f, 6.0f, x + 3.0f)) / 6.0f)),
    Function("Mish", 8, FN(x* VecTanh(VecSoftplus(x)))),
    Function("Erf", 8, FN(VecErf(x))),
    Function("Floor", 8, FN(VecFloor(x))),
    Function("Ceil", 8, FN(VecCeil(x))),
    Function("Round", 8, FN(VecRound(x))),
    Function("LeakyRelu", 8, FN(Select(x < 0.0f, p[0] * x, x))),
    Function("Elu", 8, FN(Select(x < 0.0f, p[0] * VecExpm1(x), x))),
    Function("Celu", 8, FN(Select(x < 0.0f, p[0] * VecExpm1(x / p[0]), x))),
    Function("ThresholdedRelu", 8, FN(Select((x > p[0]) | (x != x), x, 0.0f))),
    Function("Selu", 8, FN(p[1] * Select(x < 0.0f, p[0] * VecExpm1(x), x))),
    Function("HardSigmoid", 8, FN(Within(p[0] * x + p[1], 0, 1))),
    Function("Shrink", 8, FN(Select(x < -p[0], x + p[1], Select(x > p[0], x - p[1], 0.0f)))),
    Function("Clip", 2, FN(Within(x, p[0], p[1]))),
    Function("Pow/2", 2, FN(x* x)),
    Float32("Gelu/none", 8, FN(VecGelu(x))),
    Float32("Gelu/tanh", 8, FN(VecTanhGelu(x))),
    PlainLoop<uint8_t>("IsNaN", 8, FN(x != x)),
    PlainLoop<uint8_t>("IsInf", 8, FN(VecAbs(x) == kInf && p[x < 0 ? 0 : 1] != 0)),
    {"cpu.RotateHalves", 2, RotateHalves},
    {"Cast/bool-f32", 2, BoolToFloat},
    {"Cast/bf16-f32", 2, WidenBFloat16},
    {"Cast/f32-bf16", 2, NarrowBFloat16},
    {"Cast/f16-f32", 2, WidenHalf},
    {"Cast/f32-f16", 2, NarrowHalf},
};

constexpr BinaryEntry kBinary[] = {
    Function2("Add", 2, FN2(a + b)),
    Function2("Sub", 2, FN2(a - b)),
    Function2("Mul", 2, FN2(a* b)),
    Function2("Div", 2, FN2(a / b)),
    PlainLoop2<float>("Pow", 32, FN2(Pow(a, b))),
    Function2("Min", 2, FN2(Select((a < b) | (a != a), a, b))),
    Function2("Max", 2, FN2(Select((a > b) | (a != a), a, b))),
    PlainLoop2<float>("Mod/1", 8, FN2(Fmod(a, b))),
    Function2("Mod/0", 8, FN2(a - VecFloor(a / b) * b)),
    Function2("PRelu", 8, FN2(Select(a < 0.0f, a* b, a))),
    Float32Pair("GeluGrad/none", 8, FN2(a* VecGeluDerivative(b))),
    Float32Pair("GeluGrad/tanh", 8, FN2(a* VecTanhGeluDerivative(b))),
    Float32Pair("BinaryCrossEntropyWithLogits", 8,
                FN2(Select(a > 0.0f, a, 0.0f) - a * b + VecLog1p(VecExp(-VecAbs(a))))),
    PlainLoop2<uint8_t>("Equal", 2, FN2(a == b)),
    PlainLoop2<uint8_t>("Less", 2, FN2(a < b)),
    PlainLoop2<uint8_t>("LessOrEqual", 2, FN2(a <= b)),
    PlainLoop2<uint8_t>("Greater", 2, FN2(a > b)),
    PlainLoop2<uint8_t>("GreaterOrEqual", 2, FN2(a >= b)),
};

#undef FN
#undef FN2

}  // namespace

const ElementwiseTables& ElementwiseTable() {
  static constexpr ElementwiseTables kTable = {kUnary,     kBinary,    SelectFloats, Blend<0>,
                                               Blend<'*'>, Blend<'/'>, Root<'*'>,    Root<'/'>};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
