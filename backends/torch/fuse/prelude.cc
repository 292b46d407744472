#include "backends/torch/fuse/fuse_graph.h"

#include "absl/strings/ascii.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

// Defines the element types in memory and vectors of up to 16 bytes per access.
constexpr std::string_view kMemory = R"(
#define DEVICE static __device__ __forceinline__

struct Pointers {
  void* at[32];
};

struct bf16 {
  unsigned short bits;
};
struct f16 {
  unsigned short bits;
};

template <typename T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Pack {
  T at[V];
};

template <int V, typename T>
DEVICE Pack<T, V> Load(const void* from, Index element) {
  return *reinterpret_cast<const Pack<T, V>*>(static_cast<const T*>(from) + element);
}
template <typename T, int V>
DEVICE void Store(const Pack<T, V>& values, void* to, Index element) {
  *reinterpret_cast<Pack<T, V>*>(static_cast<T*>(to) + element) = values;
}

DEVICE float ToFloat(unsigned bits) { return __uint_as_float(bits); }
DEVICE bool Widen(bool x) { return x; }
DEVICE float Widen(float x) { return x; }
DEVICE double Widen(double x) { return x; }
DEVICE float Widen(bf16 x) { return ToFloat(static_cast<unsigned>(x.bits) << 16); }

// Round to the nearest, ties to even.
DEVICE bf16 ToBf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const unsigned bits = __float_as_uint(x);
  if (x != x) return {static_cast<unsigned short>(bits >> 16 | 0x40)};
  return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#endif
}

template <typename T>
DEVICE T Narrow(real x) {
  return static_cast<T>(x);
}
template <>
__device__ __forceinline__ bf16 Narrow<bf16>(real x) {
  return ToBf16(static_cast<float>(x));
}
DEVICE f16 ToF16(float x);
template <>
__device__ __forceinline__ f16 Narrow<f16>(real x) {
  return ToF16(static_cast<float>(x));
}

#if defined(__CUDACC__)
DEVICE f16 ToF16(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
DEVICE float Widen(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
#else
DEVICE f16 ToF16(float x) {
  const _Float16 y = x;
  return __builtin_bit_cast(f16, y);
}
DEVICE float Widen(f16 x) { return __builtin_bit_cast(_Float16, x); }
#endif
)";

constexpr std::string_view kFunctions = R"(
DEVICE real Infinity() { return static_cast<real>(__uint_as_float(0x7f800000u)); }
DEVICE real NotANumber() { return static_cast<real>(__uint_as_float(0x7fc00000u)); }

DEVICE real Min(real a, real b) { return a < b || a != a ? a : b; }
DEVICE real Max(real a, real b) { return a > b || a != a ? a : b; }
DEVICE real Clamp(real a, real low, real high) {
  const real x = a < low ? low : a;
  return x > high ? high : x;
}
// As Python's %: with the sign of b.
DEVICE real FloorMod(real a, real b) {
  const real m = TruncMod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

// Gaussian error linear units: x·Φ(x), Φ(x) = (1 + erf(x/√2))/2, and the approximation by tanh.
DEVICE real Gelu(real x) { return x * real(0.5) * (1 + Erf(x * real(0.70710678118654752440))); }
DEVICE real GeluSlope(real x) {
  const real cdf = real(0.5) * (1 + Erf(x * real(0.70710678118654752440)));
  const real pdf = Exp(real(-0.5) * x * x) * real(0.39894228040143267794);
  return cdf + x * pdf;
}
DEVICE real GeluInner(real x) {
  return real(0.79788456080286535588) * (x + real(0.044715) * x * x * x);
}
DEVICE real GeluTanh(real x) { return real(0.5) * x * (1 + Tanh(GeluInner(x))); }
DEVICE real GeluTanhSlope(real x) {
  const real t = Tanh(GeluInner(x));
  const real inner_slope = real(0.79788456080286535588) * (1 + 3 * real(0.044715) * x * x);
  return real(0.5) * (1 + t) + real(0.5) * x * ((1 - t * t) * inner_slope);
}

struct Sum {
  DEVICE real Start() { return 0; }
  DEVICE real Join(real a, real b) { return a + b; }
};
struct Maximum {
  DEVICE real Start() { return -Infinity(); }
  DEVICE real Join(real a, real b) { return Max(a, b); }
};
struct Minimum {
  DEVICE real Start() { return Infinity(); }
  DEVICE real Join(real a, real b) { return Min(a, b); }
};

// Reduces over T threads, whole warps, and returns the result to each of them. The order is fixed.
template <typename Op, int T>
DEVICE real Reduce(real x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = Op::Join(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  if (T == 32) return x;
  __shared__ real parts[32];
  __syncthreads();  // all have read the parts of the reduction before
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = parts[0];
  for (int w = 1; w < T / 32; ++w) x = Op::Join(x, parts[w]);
  return x;
}

// All threads of a team of T have read what one of them is about to overwrite.
template <int T>
DEVICE void WaitForTeam() {
  T == 32 ? __syncwarp() : __syncthreads();
}

// Adds slices of 32 columns: 1024 threads, of which 32 share a column. Returns the sum to the first 32 threads.
DEVICE real ReduceSlices(real x) {
  __shared__ real parts[1024];
  __syncthreads();
  parts[threadIdx.x] = x;
  __syncthreads();
  real sum = 0;
  if (threadIdx.x < 32) {
    for (int s = 0; s < 32; ++s) sum += parts[s * 32 + threadIdx.x];
  }
  return sum;
}
)";

// Implements Philox4x32-10 as specified in frontend/ops/random.h.
constexpr std::string_view kRandom = R"(
typedef unsigned long long uint64;

struct Words {
  unsigned at[4];
};

// The key of a random operator with its stream, and the number of the first element.
struct Random {
  unsigned key0, key1, step, micro;
  uint64 first;
};

DEVICE Random MakeRandom(const void* key, unsigned stream, uint64 elements) {
  const unsigned* words = static_cast<const unsigned*>(key);
  const unsigned piece = words[3], parts = piece & 0xffff;
  return {words[0] + 0x9E3779B9u * stream, stream * 0x85EBCA6Bu, words[1], words[2],
          piece == 0 ? 0 : elements * (piece >> 16) / (parts == 0 ? 1 : parts)};
}

DEVICE Words RandomBlock(const Random& random, uint64 block) {
  unsigned c0 = static_cast<unsigned>(block), c1 = static_cast<unsigned>(block >> 32), c2 = random.step,
           c3 = random.micro, key0 = random.key0, key1 = random.key1;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64 p0 = static_cast<uint64>(0xD2511F53u) * c0, p1 = static_cast<uint64>(0xCD9E8D57u) * c2;
    c0 = static_cast<unsigned>(p1 >> 32) ^ c1 ^ key0;
    c2 = static_cast<unsigned>(p0 >> 32) ^ c3 ^ key1;
    c1 = static_cast<unsigned>(p1);
    c3 = static_cast<unsigned>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

DEVICE unsigned Select(const Words& words, unsigned i) {
  return i < 2 ? (i == 0 ? words.at[0] : words.at[1]) : (i == 2 ? words.at[2] : words.at[3]);
}

// The words of V elements from `element` on.
template <int V>
struct WordsOf {
  unsigned at[V];
};
template <int V>
DEVICE WordsOf<V> RandomWords(const Random& random, uint64 element) {
  const uint64 first = random.first + element;
  const unsigned skipped = static_cast<unsigned>(first) & 3;
  WordsOf<V> result;
  Words block = RandomBlock(random, first / 4);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (i > 0 && ((skipped + i) & 3) == 0) block = RandomBlock(random, (first + i) / 4);
    result.at[i] = Select(block, (skipped + i) & 3);
  }
  return result;
}

// In [0, 1), a multiple of 2^-24.
DEVICE float Uniform(unsigned word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
)";

// Functions of the C math library. For "exp", kernels get Exp(x), which calls exp or expf.
constexpr std::string_view kMath[] = {"exp",   "log",   "log1p", "expm1", "sqrt",  "sin",  "cos",
                                      "tan",   "asin",  "acos",  "atan",  "sinh",  "cosh", "asinh",
                                      "acosh", "atanh", "tanh",  "erf",   "floor", "ceil"};

std::string MakeMath(bool wide) {
  const std::string_view suffix = wide ? "" : "f";
  std::string text;
  const auto define = [&](std::string_view name, std::string_view function) {
    StrAppend(&text, "DEVICE real ", name, "(real x) { return ", function, suffix, "(x); }\n");
  };
  define("Abs", "fabs");
  for (std::string_view function : kMath) {
    std::string name(function);
    name[0] = absl::ascii_toupper(name[0]);
    define(name, function);
  }
  define("RoundToEven", "rint");
  StrAppend(&text, "DEVICE real Pow(real a, real b) { return pow", suffix, "(a, b); }\n");
  StrAppend(&text, "DEVICE real TruncMod(real a, real b) { return fmod", suffix, "(a, b); }\n");
  return text;
}

}  // namespace

std::string MakePrelude(const PreludeOptions& options) {
  const bool wide = options.wide;
  return StrCat("typedef ", wide ? "double" : "float", " real;\ntypedef ", options.long_index ? "long long" : "int",
                " Index;\n", kMemory, MakeMath(wide), kFunctions, kRandom);
}

}  // namespace onnxtrain::aten
