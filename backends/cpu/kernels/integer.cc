// Prepares elementwise operators over integers and booleans. They are rare and small, so they run plain loops.
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/typed.h"

namespace onnxtrain::cpu {
namespace {

// Converts to T modulo 2^bits, so that arithmetic wraps around.
template <typename T>
T Wrap(uint64_t x) {
  return static_cast<T>(x);
}

struct AddOp {
  template <typename T>
  static T F(T a, T b) {
    return Wrap<T>(uint64_t(a) + uint64_t(b));
  }
};
struct SubOp {
  template <typename T>
  static T F(T a, T b) {
    return Wrap<T>(uint64_t(a) - uint64_t(b));
  }
};
struct MulOp {
  template <typename T>
  static T F(T a, T b) {
    return Wrap<T>(uint64_t(a) * uint64_t(b));
  }
};

// Division by zero returns 0, and the smallest number divided by −1 wraps around: both would trap.
struct DivOp {
  template <typename T>
  static T F(T a, T b) {
    if (b == 0) return 0;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Wrap<T>(0 - uint64_t(a));
    return a / b;
  }
};
struct RemainderOp {
  template <typename T>
  static T F(T a, T b) {
    return b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1)) ? 0 : a % b;
  }
};
struct FloorModOp {  // with the sign of the divisor
  template <typename T>
  static T F(T a, T b) {
    const T r = RemainderOp::F(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};
struct PowOp {
  template <typename T>
  static T F(T a, T b) {
    if (b < 0) return a == 1 ? 1 : a == static_cast<T>(-1) ? (b % 2 == 0 ? 1 : a) : 0;
    uint64_t result = 1, base = uint64_t(a);
    for (auto e = uint64_t(b); e != 0; e >>= 1, base *= base) result *= (e & 1) ? base : 1;
    return Wrap<T>(result);
  }
};
struct MinOp {
  template <typename T>
  static T F(T a, T b) {
    return a < b ? a : b;
  }
};
struct MaxOp {
  template <typename T>
  static T F(T a, T b) {
    return a > b ? a : b;
  }
};
struct PReluOp {
  template <typename T>
  static T F(T a, T b) {
    return a < 0 ? MulOp::F(a, b) : a;
  }
};
struct EqualOp {
  template <typename T>
  static bool F(T a, T b) {
    return a == b;
  }
};
struct LessOp {
  template <typename T>
  static bool F(T a, T b) {
    return a < b;
  }
};
struct LessOrEqualOp {
  template <typename T>
  static bool F(T a, T b) {
    return a <= b;
  }
};
struct GreaterOp {
  template <typename T>
  static bool F(T a, T b) {
    return a > b;
  }
};
struct GreaterOrEqualOp {
  template <typename T>
  static bool F(T a, T b) {
    return a >= b;
  }
};
struct AndOp {
  static bool F(bool a, bool b) { return a && b; }
};
struct OrOp {
  static bool F(bool a, bool b) { return a || b; }
};
struct XorOp {
  static bool F(bool a, bool b) { return a != b; }
};

struct BitwiseAndOp {
  template <typename T>
  static T F(T a, T b) {
    return a & b;
  }
};
struct BitwiseOrOp {
  template <typename T>
  static T F(T a, T b) {
    return a | b;
  }
};
struct BitwiseXorOp {
  template <typename T>
  static T F(T a, T b) {
    return a ^ b;
  }
};
struct ShiftLeftOp {
  template <typename T>
  static T F(T a, T b) {
    return uint64_t(b) > 63 ? T(0) : Wrap<T>(uint64_t(a) << b);
  }
};
struct ShiftRightOp {
  template <typename T>
  static T F(T a, T b) {
    return uint64_t(b) > 63 ? T(0) : Wrap<T>(uint64_t(a) >> b);
  }
};

template <typename Op, typename T, int kStepA, int kStepB>
void Loop2(const void* a, const void* b, void* y, int64_t n) {
  using Y = decltype(Op::F(T(), T()));
  const T *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
  auto* out = static_cast<Y*>(y);
  for (int64_t i = 0; i < n; ++i) out[i] = Op::F(left[i * kStepA], right[i * kStepB]);
}

template <typename Op, typename T>
BinarySpans GetSpans() {
  return {&Loop2<Op, T, 1, 1>, &Loop2<Op, T, 1, 0>, &Loop2<Op, T, 0, 1>};
}

template <typename Op>
absl::StatusOr<Kernel> PrepareBinary(const KernelContext& c) {
  return ForInteger(c.in().dtype, [&]<typename T>(T) { return BinaryKernel(c, GetSpans<Op, T>()); });
}

template <typename Op>
absl::StatusOr<Kernel> PrepareLogic(const KernelContext& c) {
  return BinaryKernel(c, GetSpans<Op, bool>());
}

absl::StatusOr<Kernel> PrepareMod(const KernelContext& c) {
  return c.attrs().Int("fmod") != 0 ? PrepareBinary<RemainderOp>(c) : PrepareBinary<FloorModOp>(c);
}

struct NegOp {
  template <typename T>
  static T F(T x, T, T) {
    return SubOp::F(T(0), x);
  }
};
struct AbsOp {
  template <typename T>
  static T F(T x, T, T) {
    return x < 0 ? SubOp::F(T(0), x) : x;
  }
};
struct SignOp {
  template <typename T>
  static T F(T x, T, T) {
    return x > 0 ? 1 : x < 0 ? -1 : 0;
  }
};
struct ReluOp {
  template <typename T>
  static T F(T x, T, T) {
    return x < 0 ? 0 : x;
  }
};
struct ClipOp {
  template <typename T>
  static T F(T x, T low, T high) {
    return x < low ? low : x > high ? high : x;
  }
};
struct BitwiseNotOp {
  template <typename T>
  static T F(T x, T, T) {
    return ~x;
  }
};
struct NotOp {
  static bool F(bool x, bool, bool) { return !x; }
};

template <typename T>
T Saturated(double x) {
  if (!(x > static_cast<double>(std::numeric_limits<T>::min()))) return std::numeric_limits<T>::min();
  if (x >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

template <typename Op, typename T>
Kernel UnaryOf(const KernelContext& c) {
  const int64_t n = c.out().elements();
  const T low = Saturated<T>(std::ceil(c.attrs().Float("min"))),
          high = Saturated<T>(std::floor(c.attrs().Float("max")));
  return {.run = [=](const Args& args) {
    for (int64_t i = 0; i < n; ++i) args.out<T>()[i] = Op::F(args.in<T>()[i], low, high);
  }};
}

template <typename Op>
absl::StatusOr<Kernel> PrepareUnary(const KernelContext& c) {
  return ForInteger(c.in().dtype, [&]<typename T>(T) { return UnaryOf<Op, T>(c); });
}

absl::StatusOr<Kernel> PrepareNot(const KernelContext& c) { return UnaryOf<NotOp, bool>(c); }

}  // namespace

std::span<const KernelRow> IntegerKernels() {
  constexpr TypeSet kCompared = kInts | kBools;
  static constexpr KernelRow kRows[] = {
      {"Add", PrepareBinary<AddOp>, kInts},
      {"Sub", PrepareBinary<SubOp>, kInts},
      {"Mul", PrepareBinary<MulOp>, kInts},
      {"Div", PrepareBinary<DivOp>, kInts},
      {"Pow", PrepareBinary<PowOp>, kInts},
      {"Min", PrepareBinary<MinOp>, kInts},
      {"Max", PrepareBinary<MaxOp>, kInts},
      {"PRelu", PrepareBinary<PReluOp>, kInts},
      {"Mod", PrepareMod, kInts},
      {"Equal", PrepareLogic<EqualOp>, kBools},
      {"Equal", PrepareBinary<EqualOp>, kCompared},
      {"Less", PrepareBinary<LessOp>, kCompared},
      {"LessOrEqual", PrepareBinary<LessOrEqualOp>, kCompared},
      {"Greater", PrepareBinary<GreaterOp>, kCompared},
      {"GreaterOrEqual", PrepareBinary<GreaterOrEqualOp>, kCompared},
      {"And", PrepareLogic<AndOp>, kBools},
      {"Or", PrepareLogic<OrOp>, kBools},
      {"Xor", PrepareLogic<XorOp>, kBools},
      {"BitwiseAnd", PrepareBinary<BitwiseAndOp>, kInts},
      {"BitwiseOr", PrepareBinary<BitwiseOrOp>, kInts},
      {"BitwiseXor", PrepareBinary<BitwiseXorOp>, kInts},
      {"BitwiseNot", PrepareUnary<BitwiseNotOp>, kInts},
      {"ShiftLeft", PrepareBinary<ShiftLeftOp>, kInts},
      {"ShiftRight", PrepareBinary<ShiftRightOp>, kInts},
      {"Not", PrepareNot, kBools},
      {"Neg", PrepareUnary<NegOp>, kInts},
      {"Abs", PrepareUnary<AbsOp>, kInts},
      {"Sign", PrepareUnary<SignOp>, kInts},
      {"Relu", PrepareUnary<ReluOp>, kInts},
      {"Clip", PrepareUnary<ClipOp>, kInts},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
