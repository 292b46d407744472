#include "frontend/data/convert.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "frontend/base/half.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Storage types that share a C++ type.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

template <typename T>
using Tag = std::type_identity<T>;

template <typename F>
decltype(auto) Visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(Tag<float>());
    case DType::kFloat64:
      return f(Tag<double>());
    case DType::kFloat16:
      return f(Tag<Half>());
    case DType::kBFloat16:
      return f(Tag<BFloat16>());
    case DType::kInt8:
      return f(Tag<int8_t>());
    case DType::kInt16:
      return f(Tag<int16_t>());
    case DType::kInt32:
      return f(Tag<int32_t>());
    case DType::kInt64:
      return f(Tag<int64_t>());
    case DType::kUInt8:
      return f(Tag<uint8_t>());
    case DType::kUInt16:
      return f(Tag<uint16_t>());
    case DType::kUInt32:
      return f(Tag<uint32_t>());
    case DType::kUInt64:
      return f(Tag<uint64_t>());
    case DType::kBool:
      return f(Tag<Bool>());
    default:  // storage types, which ConvertValues rejects
      break;
  }
  std::abort();
}

// Converts a stored value for arithmetic.
inline float ReadScalar(Half h) { return HalfToFloat(h.bits); }
inline float ReadScalar(BFloat16 b) { return BFloat16ToFloat(b.bits); }
inline uint8_t ReadScalar(Bool b) { return b.value != 0; }
template <typename T>
T ReadScalar(T v) {
  return v;
}

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

template <typename From, typename To>
void Normalize(const Normalization& norm, const From* from, int64_t n, To* to) {
  const auto channels = static_cast<int64_t>(norm.mean.size());
  for (int64_t block = 0; block * norm.inner < n; ++block) {
    const double mean = norm.mean[block % channels], std = norm.std[block % channels], scale = norm.scale;
    for (int64_t i = block * norm.inner, end = i + norm.inner; i < end; ++i) {
      Store((static_cast<double>(ReadScalar(from[i])) * scale - mean) / std, &to[i]);
    }
  }
}

// Expands none, one or `channels` values to one per channel.
absl::StatusOr<std::vector<double>> PerChannel(const char* what, std::vector<double> values, double none,
                                               int64_t channels) {
  if (values.empty()) values.push_back(none);
  if (values.size() == 1) values.resize(channels, values[0]);
  if (static_cast<int64_t>(values.size()) != channels) {
    return Invalid(what, " has ", values.size(), " values, but there are ", channels, " channels");
  }
  return values;
}

absl::StatusOr<Normalization> MakeNormalization(const FeedSpec& spec) {
  if (!IsFloat(spec.sample.dtype))
    return Invalid("images are normalized for float inputs only, this one is ", ToString(spec.sample.dtype));
  const Shape& shape = spec.sample.shape;
  const bool one = spec.mean.size() <= 1 && spec.std.size() <= 1;
  if (!one && (spec.channel_axis < 0 || spec.channel_axis >= spec.sample.rank())) {
    return Invalid("channel axis ", spec.channel_axis, " is outside of ", ToString(spec.sample));
  }
  const int64_t channels = one ? 1 : shape[spec.channel_axis];
  Normalization norm{.scale = spec.scale};
  ASSIGN_OR_RETURN(norm.mean, PerChannel("mean", spec.mean, 0, channels));
  ASSIGN_OR_RETURN(norm.std, PerChannel("std", spec.std, 1, channels));
  for (double s : norm.std) {
    if (!(s > 0)) return Invalid("a std of ", s, " is not positive");
  }
  norm.inner = one ? spec.sample.elements() : NumElements(Shape(shape.begin() + spec.channel_axis + 1, shape.end()));
  return norm;
}

// Are all values finite (or NaN, where that is allowed) and in range? One pass without branches.
template <typename T>
bool AreValid(std::span<T> values, bool allow_nan, double low, double high) {
  bool valid = true;
  for (const T stored : values) {
    const auto x = static_cast<double>(ReadScalar(stored));
    valid &= (x >= low && x <= high) || (allow_nan && x != x);
  }
  return valid;
}

struct Bounds {
  double low, high;
};
Bounds MakeBounds(const FeedSpec& spec) {
  if (spec.range.has_value()) return {spec.range->min, spec.range->max};
  return {-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
}

// Checks that the columns together have as many values as the feed.
absl::Status CheckColumns(const Dataset& data, const FeedSpec& spec) {
  if (spec.columns.empty()) return Invalid("no column is assigned");
  int64_t total = 0;
  for (int c : spec.columns) {
    if (c < 0 || c >= static_cast<int>(data.columns().size())) return Invalid("there is no column ", c);
    const Column& column = data.columns()[c];
    if (!column.problem.empty()) return Invalid(column.problem);
    total += column.sample.elements();
    if (column.sample.elements() != data.columns()[spec.columns[0]].sample.elements()) {
      return Invalid("columns '", data.columns()[spec.columns[0]].name, "' and '", column.name, "' differ in size");
    }
  }
  if (total == spec.sample.elements()) return absl::OkStatus();
  const Column& first = data.columns()[spec.columns[0]];
  return Invalid("expected ", ToString(spec.sample), " = ", spec.sample.elements(), " values per sample, got ", total,
                 " (", spec.columns.size() == 1 ? "" : StrCat(spec.columns.size(), " columns like "), "column '",
                 first.name, "' ", ToString(first.sample), ")");
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

absl::StatusOr<FeedWriter> FeedWriter::Create(const Dataset& data, const FeedSpec& spec) {
  const std::string where = StrCat("input '", spec.feed, "': ");
  RETURN_IF_ERROR(Annotate(CheckColumns(data, spec), where));
  FeedWriter writer;
  writer.spec_ = spec;
  const bool asked = spec.scale != 1 || !spec.mean.empty() || !spec.std.empty();
  writer.normalizes_ = asked && spec.columns.size() == 1 && data.columns()[spec.columns[0]].image;
  if (writer.normalizes_) {
    auto normalization = MakeNormalization(spec);
    if (!normalization.ok()) return Annotate(normalization.status(), where);
    writer.normalization_ = *std::move(normalization);
  }
  return writer;
}

// Returns the place of the first value that is not valid, or -1.
int64_t FeedWriter::FindInvalid(std::span<const std::byte> values) const {
  const DType dtype = spec_.sample.dtype;
  if (normalizes_ || IsStorage(dtype) || (!IsFloat(dtype) && !spec_.range.has_value())) return -1;
  const Bounds bounds = MakeBounds(spec_);
  return Visit(dtype, [&]<typename T>(Tag<T>) -> int64_t {
    const std::span<const T> all(reinterpret_cast<const T*>(values.data()), values.size() / sizeof(T));
    const auto valid = [&](std::span<const T> part) {
      return AreValid(part, spec_.allow_nan, bounds.low, bounds.high);
    };
    if (valid(all)) return -1;
    size_t k = 0;
    while (valid(all.subspan(k, 1))) ++k;
    return static_cast<int64_t>(k);
  });
}

absl::Status FeedWriter::Check(const Dataset& data, int64_t i, std::span<const std::byte> values) const {
  const int64_t k = FindInvalid(values);
  if (k < 0) return absl::OkStatus();
  const size_t columns = spec_.columns.size();
  const DType dtype = spec_.sample.dtype;
  const auto size = static_cast<int64_t>(DTypeSize(dtype));
  double x = 0;
  RETURN_IF_ERROR(
      ConvertValues(dtype, values.subspan(k * size, size), DType::kFloat64, reinterpret_cast<std::byte*>(&x), 1));
  const std::string place =
      StrCat(data.Describe(i), ", column '", data.columns()[spec_.columns[k % columns]].name, "'",
             spec_.sample.elements() == static_cast<int64_t>(columns) ? "" : StrCat(", element ", k / columns), ": ");
  if (!std::isfinite(x)) return Invalid(place, x, " is not a finite ", ToString(dtype));
  return Invalid(place, x, " is outside of ", spec_.range.has_value() ? spec_.range->what : ToString(dtype));
}

absl::Status FeedWriter::Write(const Dataset& data, int64_t i, std::byte* out, std::vector<std::byte>* scratch) const {
  const auto stride = static_cast<int64_t>(spec_.columns.size());
  for (int64_t k = 0; k < stride; ++k) {
    const Column& column = data.columns()[spec_.columns[k]];
    scratch->resize(column.sample.bytes());
    RETURN_IF_ERROR(data.Read(i, spec_.columns[k], *scratch));
    if (normalizes_) {
      NormalizeValues(normalization_, column.sample.dtype, *scratch, spec_.sample.dtype, out);
      continue;
    }
    std::byte* place = out + k * static_cast<int64_t>(DTypeSize(spec_.sample.dtype));
    const absl::Status done = ConvertValues(column.sample.dtype, *scratch, spec_.sample.dtype, place, stride);
    if (!done.ok()) return Annotate(done, StrCat(data.Describe(i), ", column '", column.name, "': "));
  }
  return Check(data, i, {out, static_cast<size_t>(spec_.sample.bytes())});
}

}  // namespace onnxtrain
