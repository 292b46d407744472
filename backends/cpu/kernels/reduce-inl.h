#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kLanes = 16;

// The type of accumulators: sums and products of floats accumulate in double precision, integers wrap around.
template <typename T>
struct Wide {
  using Type = T;
};
template <>
struct Wide<float> {
  using Type = double;
};
template <>
struct Wide<StoredBFloat16> {
  using Type = double;
};

template <typename T>
struct Sum {
  using Acc = typename Wide<T>::Type;
  static constexpr Acc kStart = 0;
  static void Fold(Acc& a, const Acc& x) { a += x; }
};
template <typename T>
struct SumSquares {
  using Acc = typename Wide<T>::Type;
  static constexpr Acc kStart = 0;
  static void Fold(Acc& a, const Acc& x) { a += x * x; }
  static void Join(Acc& a, const Acc& x) { a += x; }
};
template <typename T>
struct Prod {
  using Acc = typename Wide<T>::Type;
  static constexpr Acc kStart = 1;
  static void Fold(Acc& a, const Acc& x) { a *= x; }
};
template <typename T>
struct Max {
  using Acc = T;
  static constexpr Acc kStart =
      std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  static constexpr bool kIsMax = true;
  static void Fold(Acc& a, const Acc& x) { a = x > a || x != x ? x : a; }
};
template <typename T>
struct Min {
  using Acc = T;
  static constexpr Acc kStart =
      std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  static constexpr bool kIsMax = false;
  static void Fold(Acc& a, const Acc& x) { a = x < a || x != x ? x : a; }
};

// Adds one accumulator to another.
template <typename Op, typename Acc>
void Join(Acc& into, const Acc& from) {
  if constexpr (requires { Op::Join(into, from); }) {
    Op::Join(into, from);
  } else {
    Op::Fold(into, from);
  }
}

// Folds whole vectors into `lanes`; explicit vectors, since compilers turn a maximum of numbers into branches.
template <typename Op, typename T>
int64_t ReduceLanes(const T* x, int64_t n, typename Op::Acc* lanes) {
  typedef T Lanes __attribute__((vector_size(kLanes * sizeof(T)), aligned(1), may_alias));
  Lanes folded = *reinterpret_cast<const Lanes*>(lanes);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes now = *reinterpret_cast<const Lanes*>(x + i);
    folded =
        Op::kIsMax ? ((now > folded) | (now != now) ? now : folded) : ((now < folded) | (now != now) ? now : folded);
  }
  *reinterpret_cast<Lanes*>(lanes) = folded;
  return i;
}

// Folds n consecutive elements into *acc.
template <typename Op, typename T>
void ReduceRow(const void* data, int64_t n, void* acc) {
  using Acc = typename Op::Acc;
  const T* x = static_cast<const T*>(data);
  Acc lanes[kLanes];
  for (int j = 0; j < kLanes; ++j) lanes[j] = Op::kStart;
  int64_t i = 0;
  if constexpr (requires { Op::kIsMax; }) {
    i = ReduceLanes<Op>(x, n, lanes);
  } else {
    for (; i + kLanes <= n; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) Op::Fold(lanes[j], static_cast<Acc>(x[i + j]));
    }
  }
  for (int j = 0; i < n; ++i, ++j) Op::Fold(lanes[j], static_cast<Acc>(x[i]));
  for (int j = 0; j < kLanes; ++j) Join<Op>(*static_cast<Acc*>(acc), lanes[j]);
}

// Folds n consecutive elements of bf16 into *acc as floats, block by block.
template <typename Op>
void ReduceWidened(const void* data, int64_t n, void* acc) {
  constexpr int64_t kBlock = 512;
  float block[kBlock];
  const auto* x = static_cast<const uint16_t*>(data);
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    for (int64_t i = 0; i < count; ++i) block[i] = std::bit_cast<float>(static_cast<uint32_t>(x[first + i]) << 16);
    ReduceRow<Op, float>(block, count, acc);
  }
}

// Folds n consecutive elements into n accumulators.
template <typename Op, typename T>
void ReduceColumnElements(const void* data, int64_t n, void* accs) {
  using Acc = typename Op::Acc;
  const T* x = static_cast<const T*>(data);
  auto* acc = static_cast<Acc*>(accs);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) Op::Fold(acc[i], static_cast<Acc>(x[i]));
}

template <typename Op>
void Start(void* accs, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<typename Op::Acc*>(accs)[i] = Op::kStart;
}

template <typename Op>
void Merge(void* into, const void* from, int64_t n) {
  using Acc = typename Op::Acc;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) Join<Op>(static_cast<Acc*>(into)[i], static_cast<const Acc*>(from)[i]);
}

// Stores accumulators as T. `divisor` is the count for a mean, else 1.
template <typename Op, typename T>
void Finish(const void* accs, int64_t n, double divisor, void* y) {
  const auto* acc = static_cast<const typename Op::Acc*>(accs);
  T* out = static_cast<T*>(y);
  if (divisor == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(acc[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(static_cast<double>(acc[i]) / divisor);
  }
}

template <typename Op, typename T, typename Stored = T>
constexpr Reducer MakeReducer() {
  return {sizeof(typename Op::Acc),     &Start<Op>, &ReduceRow<Op, T>,
          &ReduceColumnElements<Op, T>, &Merge<Op>, &Finish<Op, Stored>};
}

}  // namespace

template <typename T>
constexpr ReducerTable kReducers = {MakeReducer<Sum<T>, T>(),        MakeReducer<Max<T>, T>(),
                                    MakeReducer<Min<T>, T>(),        MakeReducer<Prod<T>, T>(),
                                    MakeReducer<SumSquares<T>, T>(), MakeReducer<SumSquares<T>, T, double>()};

const ReducerTable& FloatReducers() { return kReducers<float>; }

const Reducer& BFloat16SquaredNorm() {
  static constexpr Reducer kReducer = [] {
    Reducer reducer = MakeReducer<SumSquares<StoredBFloat16>, StoredBFloat16, double>();
    reducer.row = &ReduceWidened<SumSquares<float>>;
    return reducer;
  }();
  return kReducer;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
