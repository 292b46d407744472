#include "frontend/data/transform/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

template <typename T>
inline constexpr bool kStoresInteger = std::is_integral_v<T>;

// Stores a value; false if an integer type cannot hold it.
template <typename To, typename V>
bool Store(V value, To* to) {
  if constexpr (std::is_same_v<To, Half>) {
    to->bits = FloatToHalf(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    to->bits = FloatToBFloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Bool>) {
    to->value = value != 0;
  } else if constexpr (kStoresInteger<To> && std::is_floating_point_v<V>) {
    const double d = value, low = static_cast<double>(std::numeric_limits<To>::min());
    const double high = std::ldexp(1.0, std::numeric_limits<To>::digits);  // the smallest value out of range
    if (!(d >= low && d < high) || d != std::trunc(d)) return false;
    *to = static_cast<To>(d);
  } else if constexpr (kStoresInteger<To>) {
    if (!std::in_range<To>(value)) return false;
    *to = static_cast<To>(value);
  } else {
    *to = static_cast<To>(value);
  }
  return true;
}

template <typename From, typename To>
absl::Status Convert(const From* from, int64_t n, To* to, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) {
    const auto value = ReadScalar(from[i]);
    if (!Store(value, &to[i * stride])) return Invalid(+value, " is not an integer in range");
  }
  return absl::OkStatus();
}

constexpr int64_t kTableChannels = 4;

// Computes each of the 256 results of a channel once.
template <typename To>
void NormalizeByTable(const Normalization& norm, const uint8_t* from, int64_t n, To* to) {
  const auto channels = static_cast<int64_t>(norm.mean.size());
  To table[kTableChannels][256];
  for (int64_t c = 0; c < channels; ++c) {
    for (int x = 0; x < 256; ++x) Store((x * norm.scale - norm.mean[c]) / norm.std[c], &table[c][x]);
  }
  for (int64_t i = 0, c = 0; i < n; c = c + 1 == channels ? 0 : c + 1) {
    for (const int64_t end = std::min(n, i + norm.inner); i < end; ++i) to[i] = table[c][from[i]];
  }
}

template <typename From, typename To>
void Normalize(const Normalization& norm, const From* from, int64_t n, To* to) {
  const auto channels = static_cast<int64_t>(norm.mean.size());
  if constexpr (std::is_same_v<From, uint8_t>) {
    if (channels <= kTableChannels && n >= 256 * channels) return NormalizeByTable(norm, from, n, to);
  }
  for (int64_t block = 0; block * norm.inner < n; ++block) {
    const double mean = norm.mean[block % channels], std = norm.std[block % channels], scale = norm.scale;
    for (int64_t i = block * norm.inner, end = i + norm.inner; i < end; ++i) {
      Store((static_cast<double>(ReadScalar(from[i])) * scale - mean) / std, &to[i]);
    }
  }
}

}  // namespace

absl::Status ConvertValues(DType from_type, std::span<const std::byte> from, DType to_type, std::byte* to,
                           int64_t stride) {
  const auto n = static_cast<int64_t>(from.size() / DTypeSize(from_type));
  if (from_type == to_type && stride == 1) {
    if (n > 0) std::memcpy(to, from.data(), from.size());
    return absl::OkStatus();
  }
  if (IsStorage(from_type) || IsStorage(to_type)) {
    return Invalid("values of type ", ToString(from_type), " cannot become ", ToString(to_type));
  }
  return Visit(from_type, [&]<typename From>(Tag<From>) {
    return Visit(to_type, [&]<typename To>(Tag<To>) {
      return Convert(reinterpret_cast<const From*>(from.data()), n, reinterpret_cast<To*>(to), stride);
    });
  });
}

void NormalizeValues(const Normalization& normalization, DType from_type, std::span<const std::byte> from,
                     DType to_type, std::byte* to) {
  CHECK(IsFloat(to_type));
  const auto n = static_cast<int64_t>(from.size() / DTypeSize(from_type));
  Visit(from_type, [&]<typename From>(Tag<From>) {
    Visit(to_type, [&]<typename To>(Tag<To>) {
      if constexpr (!kStoresInteger<To> && !std::is_same_v<To, Bool>) {
        Normalize(normalization, reinterpret_cast<const From*>(from.data()), n, reinterpret_cast<To*>(to));
      }
    });
  });
}

void StandardizeValues(const Standardize& standardize, DType from_type, std::span<const std::byte> from, DType to_type,
                       std::byte* to, int64_t stride) {
  const auto n = static_cast<int64_t>(from.size() / DTypeSize(from_type));
  Visit(from_type, [&]<typename From>(Tag<From>) {
    Visit(to_type, [&]<typename To>(Tag<To>) {
      for (int64_t j = 0; j < n; ++j) {
        const auto x = static_cast<double>(ReadScalar(reinterpret_cast<const From*>(from.data())[j]));
        const int64_t at = standardize.first + j * standardize.step;
        Store((x - standardize.shift[at]) / standardize.divisor[at], reinterpret_cast<To*>(to) + j * stride);
      }
    });
  });
}

}  // namespace onnxtrain
