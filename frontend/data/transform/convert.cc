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

// Stores a value; returns false if an integer type cannot represent it.
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
    const double high = std::ldexp(1.0, std::numeric_limits<To>::digits);  // smallest value above the range
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

// Normalizes bytes with a table of the 256 results per channel.
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

namespace {

// Expands `values` to one per channel: it may be empty (then `none`), or have one or `channels` values.
absl::StatusOr<std::vector<double>> PerChannel(const char* what, std::vector<double> values, double none,
                                               int64_t channels) {
  if (values.empty()) values.push_back(none);
  if (values.size() == 1) values.resize(channels, values[0]);
  if (static_cast<int64_t>(values.size()) != channels) {
    return Invalid(what, " has ", values.size(), " values, but there are ", channels, " channels");
  }
  return values;
}

// Returns the number of consecutive elements of a sample that belong to the same channel.
int64_t InnerElements(const FeedSpec& spec, const Type& sample) {
  if (spec.mean.size() <= 1 && spec.std.size() <= 1) return sample.elements();
  return NumElements(Shape(sample.shape.begin() + spec.channel_axis + 1, sample.shape.end()));
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
  norm.inner = InnerElements(spec, spec.sample);
  return norm;
}

absl::Status CheckStandardization(const FeedSpec& spec, const Dataset& data) {
  const size_t given = spec.shift.size();
  if (given == 0 && spec.divisor.empty()) return absl::OkStatus();
  const bool fits = given == 1 || given == spec.columns.size() || given == static_cast<size_t>(spec.sample.elements());
  if (given != spec.divisor.size() || !fits)
    return Invalid("standardization of ", given, " values, but a sample has ", spec.sample.elements());
  if (!IsFloat(spec.sample.dtype))
    return Invalid("only floats are standardized, this is ", ToString(spec.sample.dtype));
  for (const int c : spec.columns) {
    if (IsStorage(data.columns()[c].sample.dtype))
      return Invalid("values of type ", ToString(data.columns()[c].sample.dtype), " cannot be standardized");
  }
  return absl::OkStatus();
}

struct Bounds {
  double low, high;
  double besides = std::numeric_limits<double>::quiet_NaN();  // another allowed value
};
Bounds MakeBounds(const std::optional<ValueRange>& range) {
  if (!range.has_value()) return {-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
  Bounds bounds{range->min, range->max};
  if (range->besides.has_value()) bounds.besides = *range->besides;
  return bounds;
}

// Returns true if all values are in bounds, or NaN if allowed. One pass without branches.
template <typename T>
bool AreValid(std::span<T> values, bool allow_nan, const Bounds& bounds) {
  bool valid = true;
  for (const T stored : values) {
    const auto x = static_cast<double>(ReadScalar(stored));
    valid &= (x >= bounds.low && x <= bounds.high) || x == bounds.besides || (allow_nan && x != x);
  }
  return valid;
}

// Returns the bytes of sample `i`. Allocates nothing if all samples have one size.
size_t SampleBytes(const Dataset& data, int64_t i, int c) {
  const Column& column = data.columns()[c];
  return column.height_axis < 0 ? column.sample.bytes() : SampleType(data, i, c).bytes();
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
  if (spec.one_hot && total == 1 && IsFloat(spec.sample.dtype)) return absl::OkStatus();
  if (total == spec.sample.elements() && !spec.one_hot) return absl::OkStatus();
  const Column& first = data.columns()[spec.columns[0]];
  return Invalid("expected ", ToString(spec.sample), " = ", spec.sample.elements(), " values per sample, got ", total,
                 " (", spec.columns.size() == 1 ? "" : StrCat(spec.columns.size(), " columns like "), "column '",
                 first.name, "' ", ToString(first.sample), ")");
}

}  // namespace

int64_t FindInvalidValue(DType dtype, std::span<const std::byte> values, const std::optional<ValueRange>& range,
                         bool allow_nan) {
  if (IsStorage(dtype) || (!IsFloat(dtype) && !range.has_value())) return -1;
  const Bounds bounds = MakeBounds(range);
  return Visit(dtype, [&]<typename T>(Tag<T>) -> int64_t {
    const std::span<const T> all(reinterpret_cast<const T*>(values.data()), values.size() / sizeof(T));
    const auto valid = [&](std::span<const T> part) { return AreValid(part, allow_nan, bounds); };
    if (valid(all)) return -1;
    size_t k = 0;
    while (valid(all.subspan(k, 1))) ++k;
    return static_cast<int64_t>(k);
  });
}

absl::StatusOr<FeedWriter> FeedWriter::Create(const Dataset& data, const FeedSpec& spec) {
  const std::string where = StrCat("input '", spec.feed, "': ");
  RETURN_IF_ERROR(Annotate(CheckColumns(data, spec), where));
  RETURN_IF_ERROR(Annotate(CheckStandardization(spec, data), where));
  FeedWriter writer;
  writer.spec_ = spec;
  writer.padding_.resize(DTypeSize(spec.sample.dtype));
  RETURN_IF_ERROR(ConvertValues(DType::kFloat64, std::as_bytes(std::span(&spec.padding, 1)), spec.sample.dtype,
                                writer.padding_.data(), 1));
  const bool asked = spec.scale != 1 || !spec.mean.empty() || !spec.std.empty();
  writer.normalizes_ = asked && spec.columns.size() == 1 && data.columns()[spec.columns[0]].image;
  if (writer.normalizes_) {
    auto normalization = MakeNormalization(spec);
    if (!normalization.ok()) return Annotate(normalization.status(), where);
    writer.normalization_ = *std::move(normalization);
  }
  return writer;
}

// Returns the index of the first invalid value, or -1.
int64_t FeedWriter::FindInvalid(std::span<const std::byte> values) const {
  return normalizes_ ? -1 : FindInvalidValue(spec_.sample.dtype, values, spec_.range, spec_.allow_nan);
}

absl::Status FeedWriter::Check(const Dataset& data, int64_t i, std::span<const std::byte> values) const {
  const int64_t k = FindInvalid(values);
  if (k < 0) return spec_.check ? spec_.check(data, i) : absl::OkStatus();
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

Type FeedWriter::PaddedSample(const PictureExtents& extents) const {
  Type type = spec_.sample;
  if (!sized()) return type;
  type.shape[spec_.height_axis] = extents.padded_height;
  type.shape[spec_.height_axis + 1] = extents.padded_width;
  return type;
}

void FeedWriter::NormalizePixels(const PictureExtents& extents, DType from_type, std::span<const std::byte> from,
                                 std::byte* to) const {
  if (!sized()) return NormalizeValues(normalization_, from_type, from, spec_.sample.dtype, to);
  const Type own = PaddedSample({.padded_height = extents.height, .padded_width = extents.width});
  Normalization normalization = normalization_;
  normalization.inner = InnerElements(spec_, own);
  NormalizeValues(normalization, from_type, from, spec_.sample.dtype, to);
}

// Moves the last row first, so that no row is overwritten before it has moved.
void FeedWriter::Pad(const PictureExtents& extents, std::span<std::byte> out) const {
  const Shape& shape = spec_.sample.shape;
  const auto behind = shape.begin() + spec_.height_axis + 2;
  const int64_t planes = NumElements(Shape(shape.begin(), shape.begin() + spec_.height_axis));
  const int64_t pixel = NumElements(Shape(behind, shape.end())) * static_cast<int64_t>(padding_.size());
  const int64_t row = extents.width * pixel, padded_row = extents.padded_width * pixel;
  const auto fill = [&](std::byte* begin, const std::byte* end) {
    for (; begin < end; begin += padding_.size()) std::ranges::copy(padding_, begin);
  };
  for (int64_t p = planes - 1; p >= 0; --p) {
    std::byte* plane = out.data() + p * extents.padded_height * padded_row;
    fill(plane + extents.height * padded_row, plane + extents.padded_height * padded_row);
    for (int64_t r = extents.height - 1; r >= 0; --r) {
      std::memmove(plane + r * padded_row, out.data() + (p * extents.height + r) * row, row);
      fill(plane + r * padded_row + row, plane + (r + 1) * padded_row);
    }
  }
}

absl::Status FeedWriter::WriteColumn(const Dataset& data, int64_t i, int64_t k, std::span<std::byte> out,
                                     std::vector<std::byte>* scratch, const ReadPass& pass) const {
  const auto stride = static_cast<int64_t>(spec_.columns.size());
  const Column& column = data.columns()[spec_.columns[k]];
  const DType from = column.sample.dtype, to = spec_.sample.dtype;
  const size_t bytes =
      spec_.variable ? out.size() / DTypeSize(to) * DTypeSize(from) : SampleBytes(data, i, spec_.columns[k]);
  if (from == to && stride == 1 && !normalizes_ && spec_.shift.empty())
    return data.Read(i, spec_.columns[k], pass, out.first(bytes));
  scratch->resize(bytes);
  RETURN_IF_ERROR(data.Read(i, spec_.columns[k], pass, *scratch));
  std::byte* place = out.data() + k * static_cast<int64_t>(DTypeSize(to));
  absl::Status done;
  if (normalizes_) {
    NormalizePixels(data.Extents(i), from, *scratch, out.data());
  } else if (!spec_.shift.empty()) {
    const bool one = spec_.shift.size() == 1, by_column = spec_.shift.size() == spec_.columns.size();
    StandardizeValues({spec_.shift, spec_.divisor, one ? 0 : k, one || by_column ? 0 : stride}, from, *scratch, to,
                      place, stride);
  } else {
    done = ConvertValues(from, *scratch, to, place, stride);
  }
  return done.ok() ? done : Annotate(done, StrCat(data.Describe(i), ", column '", column.name, "': "));
}

absl::Status FeedWriter::WriteShares(const Dataset& data, int64_t i, std::span<std::byte> out,
                                     std::vector<std::byte>* scratch) const {
  const Column& column = data.columns()[spec_.columns[0]];
  scratch->resize(column.sample.bytes());
  RETURN_IF_ERROR(data.Read(i, spec_.columns[0], {}, *scratch));
  int64_t label = 0;
  absl::Status status =
      ConvertValues(column.sample.dtype, *scratch, DType::kInt64, reinterpret_cast<std::byte*>(&label), 1);
  const int64_t classes = spec_.sample.elements();
  if (status.ok() && (label < 0 || label >= classes))
    status =
        Invalid("label ", label, " is outside of the ", classes, " classes 0 to ", classes - 1, " that can be mixed");
  if (!status.ok()) return Annotate(status, StrCat(data.Describe(i), ", column '", column.name, "': "));
  std::ranges::fill(out, std::byte{0});
  const double one = 1;
  const size_t size = DTypeSize(spec_.sample.dtype);
  return ConvertValues(DType::kFloat64, std::as_bytes(std::span(&one, 1)), spec_.sample.dtype,
                       out.data() + label * size, 1);
}

absl::Status FeedWriter::Write(const Dataset& data, int64_t i, std::span<std::byte> out,
                               std::vector<std::byte>* scratch, const ReadPass& pass) const {
  if (spec_.one_hot) return WriteShares(data, i, out, scratch);
  const auto columns = static_cast<int64_t>(spec_.columns.size());
  for (int64_t k = 0; k < columns; ++k) RETURN_IF_ERROR(WriteColumn(data, i, k, out, scratch, pass));
  if (sized()) Pad(data.Extents(i), out);
  return Check(data, i, out);
}

}  // namespace onnxtrain
