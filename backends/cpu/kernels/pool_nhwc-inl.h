#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kPoolLanes = 16;

typedef float PoolFloats __attribute__((vector_size(kPoolLanes * sizeof(float)), aligned(4), may_alias));
typedef int32_t PoolInts __attribute__((vector_size(kPoolLanes * sizeof(int32_t)), aligned(4), may_alias));
typedef uint16_t PoolHalves __attribute__((vector_size(kPoolLanes * sizeof(uint16_t)), aligned(2), may_alias));
typedef uint8_t PoolBytes __attribute__((vector_size(kPoolLanes), aligned(1), may_alias));

// Vectors wider than those of the instruction set cannot be passed or returned by value.
[[gnu::always_inline]] inline void GetLanes(const float* x, PoolFloats& v) {
  v = *reinterpret_cast<const PoolFloats*>(x);
}
[[gnu::always_inline]] inline void GetLanes(const BFloat16* x, PoolFloats& v) {
  v = (PoolFloats)(__builtin_convertvector(*reinterpret_cast<const PoolHalves*>(x), PoolInts) << 16);
}

[[gnu::always_inline]] inline void PutLanes(const PoolFloats& v, float* to) { *reinterpret_cast<PoolFloats*>(to) = v; }
// Rounds like RoundToBFloat16.
[[gnu::always_inline]] inline void PutLanes(const PoolFloats& v, BFloat16* to) {
  const PoolInts bits = (PoolInts)v, high = (bits >> 16) & 0xffff;
  const PoolInts rounded = ((bits + 0x7fff + (high & 1)) >> 16) & 0xffff;
  *reinterpret_cast<PoolHalves*>(to) = __builtin_convertvector(v != v ? high | 0x40 : rounded, PoolHalves);
}

// The contributions to one place: each tap of `outer` combined with each tap of `inner`.
struct PoolPlace {
  const PoolTap* outer;
  int outers;
  const PoolTap* inner;
  int inners;
};

template <typename F>
[[gnu::always_inline]] inline void ForTaps(const PoolPlace& p, F f) {
  for (int o = 0; o < p.outers; ++o) {
    for (int i = 0; i < p.inners; ++i) {
      const PoolTap &a = p.outer[o], &b = p.inner[i];
      f(a.offset + b.offset, a.number + b.number, a.scale * b.scale);
    }
  }
}

// Each kind has Of<k>, which computes k vectors of channels from c on, and One, which computes channel c.

template <typename T>
struct Max {
  const T* x;
  T* y;
  uint8_t* where;
  PoolInts nan{};  // lanes with a NaN: One must compute the row

  template <int k>
  [[gnu::always_inline]] void Of(const PoolPlace& p, int64_t at, int64_t c) {
    PoolFloats best[k];
    PoolInts which[k];
    const int32_t first = p.outers > 0 && p.inners > 0 ? p.outer[0].number + p.inner[0].number : -1;
    for (int v = 0; v < k; ++v) {
      best[v] = PoolFloats{} - __builtin_inff();
      which[v] = PoolInts{} + first;
    }
    ForTaps(p, [&](int64_t offset, int32_t number, float) {
      for (int v = 0; v < k; ++v) {
        PoolFloats now;
        GetLanes(x + offset + c + v * kPoolLanes, now);
        const auto more = now > best[v];
        nan |= now != now;
        best[v] = more ? now : best[v];
        which[v] = more ? PoolInts{} + number : which[v];
      }
    });
    for (int v = 0; v < k; ++v) {
      PutLanes(best[v], y + at + c + v * kPoolLanes);
      *reinterpret_cast<PoolBytes*>(where + at + c + v * kPoolLanes) = __builtin_convertvector(which[v], PoolBytes);
    }
  }

  [[gnu::always_inline]] void One(const PoolPlace& p, int64_t at, int64_t c) {
    float best = -__builtin_inff();
    int32_t which = -1;
    ForTaps(p, [&](int64_t offset, int32_t number, float) {
      const float now = ToFloat(x[offset + c]);
      const bool more = now > best || which < 0 || (now != now && best == best);
      best = more ? now : best;
      which = more ? number : which;
    });
    StoreRounded(best, &y[at + c]);
    where[at + c] = static_cast<uint8_t>(which);
  }
};

template <typename T>
struct MaxGradGather {
  const T* dy;
  const uint8_t* where;
  T* dx;

  template <int k>
  [[gnu::always_inline]] void Of(const PoolPlace& p, int64_t at, int64_t c) {
    PoolFloats sum[k] = {};
    ForTaps(p, [&](int64_t offset, int32_t number, float) {
      for (int v = 0; v < k; ++v) {
        const int64_t from = offset + c + v * kPoolLanes;
        const PoolInts which = __builtin_convertvector(*reinterpret_cast<const PoolBytes*>(where + from), PoolInts);
        PoolFloats gradient;
        GetLanes(dy + from, gradient);
        sum[v] += which == number ? gradient : PoolFloats{};
      }
    });
    for (int v = 0; v < k; ++v) PutLanes(sum[v], dx + at + c + v * kPoolLanes);
  }

  [[gnu::always_inline]] void One(const PoolPlace& p, int64_t at, int64_t c) {
    float sum = 0;
    ForTaps(p, [&](int64_t offset, int32_t number, float) {
      sum += where[offset + c] == number ? ToFloat(dy[offset + c]) : 0.0f;
    });
    StoreRounded(sum, &dx[at + c]);
  }
};

// Scatters dy: places are windows, and each element is in one of them.
template <typename T>
struct MaxGradScatter {
  const T* dy;
  const uint8_t* where;
  T* dx;

  template <int k>
  [[gnu::always_inline]] void Of(const PoolPlace& p, int64_t at, int64_t c) {
    PoolFloats gradient[k];
    PoolInts which[k];
    for (int v = 0; v < k; ++v) {
      const int64_t from = at + c + v * kPoolLanes;
      GetLanes(dy + from, gradient[v]);
      which[v] = __builtin_convertvector(*reinterpret_cast<const PoolBytes*>(where + from), PoolInts);
    }
    ForTaps(p, [&](int64_t offset, int32_t number, float) {
      for (int v = 0; v < k; ++v) {
        PutLanes(which[v] == number ? gradient[v] : PoolFloats{}, dx + offset + c + v * kPoolLanes);
      }
    });
  }

  [[gnu::always_inline]] void One(const PoolPlace& p, int64_t at, int64_t c) {
    ForTaps(p, [&](int64_t offset, int32_t number, float) {
      StoreRounded(where[at + c] == number ? ToFloat(dy[at + c]) : 0.0f, &dx[offset + c]);
    });
  }
};

template <typename T>
struct Sum {
  const T* x;
  T* y;

  template <int k>
  [[gnu::always_inline]] void Of(const PoolPlace& p, int64_t at, int64_t c) {
    PoolFloats sum[k] = {};
    ForTaps(p, [&](int64_t offset, int32_t, float scale) {
      for (int v = 0; v < k; ++v) {
        PoolFloats now;
        GetLanes(x + offset + c + v * kPoolLanes, now);
        sum[v] += now * scale;
      }
    });
    for (int v = 0; v < k; ++v) PutLanes(sum[v], y + at + c + v * kPoolLanes);
  }

  [[gnu::always_inline]] void One(const PoolPlace& p, int64_t at, int64_t c) {
    float sum = 0;
    ForTaps(p, [&](int64_t offset, int32_t, float scale) { sum += ToFloat(x[offset + c]) * scale; });
    StoreRounded(sum, &y[at + c]);
  }
};

// Calls f(place, offset of the place, channels to compute) for all places of a row.
template <typename F>
[[gnu::always_inline]] inline void ForPlaces(const PoolRow& row, F f) {
  for (int64_t w = 0; w < row.places; ++w) {
    const PoolTap* inner = row.inner + row.begin[w];
    f(PoolPlace{row.outer, row.outers, inner, row.begin[w + 1] - row.begin[w]}, w * row.channels,
      w < row.spilling ? row.rounded : row.channels);
  }
}

template <typename Kind>
[[gnu::always_inline]] inline void ForRow(const PoolRow& row, Kind& kind) {
  ForPlaces(row, [&](const PoolPlace& p, int64_t at, int64_t n) {
    int64_t c = 0;
    for (; c + 4 * kPoolLanes <= n; c += 4 * kPoolLanes) kind.template Of<4>(p, at, c);
    for (; c + 2 * kPoolLanes <= n; c += 2 * kPoolLanes) kind.template Of<2>(p, at, c);
    for (; c + kPoolLanes <= n; c += kPoolLanes) kind.template Of<1>(p, at, c);
    for (; c < n; ++c) kind.One(p, at, c);
  });
}

template <typename T>
void MaxRow(const T* x, const PoolRow& row, T* y, uint8_t* where) {
  Max<T> kind{x, y, where};
  ForRow(row, kind);
  int32_t nan = 0;
  for (int i = 0; i < kPoolLanes; ++i) nan |= kind.nan[i];
  if (nan == 0) return;
  ForPlaces(row, [&](const PoolPlace& p, int64_t at, int64_t) {
    for (int64_t c = 0; c < row.channels; ++c) kind.One(p, at, c);
  });
}

template <typename T>
void MaxGradGatherRow(const T* dy, const uint8_t* where, const PoolRow& row, T* dx) {
  MaxGradGather<T> kind{dy, where, dx};
  ForRow(row, kind);
}

template <typename T>
void MaxGradScatterRow(const T* dy, const uint8_t* where, const PoolRow& row, T* dx) {
  MaxGradScatter<T> kind{dy, where, dx};
  ForRow(row, kind);
}

template <typename T>
void SumRow(const T* x, const PoolRow& row, T* y) {
  Sum<T> kind{x, y};
  ForRow(row, kind);
}

template <typename T>
constexpr PoolNhwcSimd<T> kPoolNhwc = {MaxRow<T>, MaxGradGatherRow<T>, MaxGradScatterRow<T>, SumRow<T>};

}  // namespace

const PoolNhwcSimd<float>& FloatPoolNhwcTable() { return kPoolNhwc<float>; }
const PoolNhwcSimd<BFloat16>& BFloat16PoolNhwcTable() { return kPoolNhwc<BFloat16>; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
