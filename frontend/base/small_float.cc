#include "frontend/base/small_float.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace onnxtrain {

float HalfToFloat(uint16_t bits) {
  constexpr uint32_t kLeastNormal = 0x400, kInfinity = 0x7c00, kRebias = (127 - 15) << 23;
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude > kInfinity) return std::bit_cast<float>(0x7fc00000u);
  if (magnitude == kInfinity) return std::bit_cast<float>(sign | 0x7f800000u);
  if (magnitude >= kLeastNormal) return std::bit_cast<float>(sign | ((magnitude << 13) + kRebias));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return sign == 0 ? subnormal : -subnormal;
}

uint16_t FloatToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  // nearbyint rounds to nearest even in the default rounding mode, which this project never changes.
  if (magnitude < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));  // in [1024, 2048]
  return sign | static_cast<uint16_t>(((exponent + 13) << 10) + mantissa);
}

namespace {

float WidenBFloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Avoids branches, so that loops over arrays vectorize.
uint16_t RoundToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (bits >> 16) | 0x40, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

}  // namespace

float BFloat16ToFloat(uint16_t bits) { return WidenBFloat16(bits); }

uint16_t FloatToBFloat16(float value) { return RoundToBFloat16(value); }

void BFloat16ToFloat(std::span<const uint16_t> bits, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = WidenBFloat16(bits[i]);
}

void FloatToBFloat16(std::span<const float> values, std::span<uint16_t> bits) {
  for (size_t i = 0; i < values.size(); ++i) bits[i] = RoundToBFloat16(values[i]);
}

namespace {

struct Format {
  int exponent_bits, mantissa_bits, bias;
  uint8_t largest;  // the code of the largest finite magnitude
  uint8_t nan, sign;
  bool negative_zero;
};

// Indexed by SmallFloat.
constexpr Format kFormats[kSmallFloats] = {
    {4, 3, 7, 0x7e, 0x7f, 0x80, true},   {4, 3, 8, 0x7f, 0x80, 0x80, false}, {5, 2, 15, 0x7b, 0x7e, 0x80, true},
    {5, 2, 16, 0x7f, 0x80, 0x80, false}, {8, 0, 127, 0xfe, 0xff, 0, false},  {2, 1, 1, 0x07, 0x08, 0x08, true},
};

const Format& GetFormat(SmallFloat format) { return kFormats[static_cast<int>(format)]; }

// Returns the magnitude of a code without sign, as if the format had no infinities and NaNs.
double DecodeMagnitude(SmallFloat format, int code) {
  const Format& f = GetFormat(format);
  const int exponent = code >> f.mantissa_bits, mantissa = code & ((1 << f.mantissa_bits) - 1);
  if (format == SmallFloat::kE8M0) return std::ldexp(1.0, exponent - f.bias);
  const int implicit = exponent > 0 ? 1 << f.mantissa_bits : 0;
  return std::ldexp(mantissa + implicit, std::max(exponent, 1) - f.bias - f.mantissa_bits);
}

float Decode(SmallFloat format, int code) {
  const Format& f = GetFormat(format);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  if (format == SmallFloat::kE2M1) code &= 0x0f;
  const int magnitude = f.sign == 0 ? code : code & (f.sign - 1);
  const float sign = magnitude != code ? -1.0f : 1.0f;
  if (magnitude > f.largest) {
    const bool infinite = format == SmallFloat::kE5M2 && magnitude == f.largest + 1;
    return infinite ? sign * std::numeric_limits<float>::infinity() : kNaN;
  }
  if (magnitude == 0 && magnitude != code && !f.negative_zero) return kNaN;
  return sign * static_cast<float>(DecodeMagnitude(format, magnitude));
}

// Returns the smallest magnitude that is encoded as code + 1.
double FindBoundary(SmallFloat format, int code, SmallRounding rounding) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double low = DecodeMagnitude(format, code), high = DecodeMagnitude(format, code + 1), middle = (low + high) / 2;
  switch (rounding) {
    case SmallRounding::kUp:
      return std::nextafter(low, kInfinity);
    case SmallRounding::kDown:
      return high;
    case SmallRounding::kNearestUp:
      return middle;
    case SmallRounding::kNearestEven:
      break;
  }
  return code % 2 == 0 ? std::nextafter(middle, kInfinity) : middle;
}

SmallFloatEncoding MakeEncoding(SmallFloat format, SmallRounding rounding, bool saturate) {
  const Format& f = GetFormat(format);
  SmallFloatEncoding encoding{.sign = f.sign, .nan = f.nan, .negative_zero = f.negative_zero};
  const bool overflows = !saturate && format != SmallFloat::kE2M1;
  for (int code = 0; code < f.largest + (overflows ? 1 : 0); ++code) {
    encoding.boundaries.push_back(FindBoundary(format, code, rounding));
  }
  if (format == SmallFloat::kE8M0 && !saturate) encoding.lowest = DecodeMagnitude(format, 0);
  return encoding;
}

}  // namespace

float SmallToFloat(SmallFloat format, uint8_t code) {
  static const auto* tables = [] {
    auto* all = new std::array<std::array<float, 256>, kSmallFloats>;
    for (int f = 0; f < kSmallFloats; ++f) {
      for (int c = 0; c < 256; ++c) (*all)[f][c] = Decode(static_cast<SmallFloat>(f), c);
    }
    return all;
  }();
  return (*tables)[static_cast<int>(format)][code];
}

uint8_t SmallFloatEncoding::Encode(double value) const {
  const double magnitude = std::fabs(value);
  const bool negative = std::signbit(value) && (magnitude > 0 || negative_zero);
  if (std::isnan(value) || magnitude < lowest || (negative && sign == 0)) return nan;
  const auto code = std::upper_bound(boundaries.begin(), boundaries.end(), magnitude) - boundaries.begin();
  return static_cast<uint8_t>(negative && (code > 0 || negative_zero) ? code | sign : code);
}

const SmallFloatEncoding& GetEncoding(SmallFloat format, SmallRounding rounding, bool saturate) {
  static const auto* encodings = [] {
    auto* all = new std::vector<SmallFloatEncoding>;
    for (int f = 0; f < kSmallFloats; ++f) {
      for (int r = 0; r < 4; ++r) {
        for (bool s : {false, true})
          all->push_back(MakeEncoding(static_cast<SmallFloat>(f), static_cast<SmallRounding>(r), s));
      }
    }
    return all;
  }();
  return (*encodings)[(static_cast<size_t>(format) * 4 + static_cast<size_t>(rounding)) * 2 + (saturate ? 1 : 0)];
}

const SmallFloatEncoding& GetEncoding(SmallFloat format) {
  return GetEncoding(format, format == SmallFloat::kE8M0 ? SmallRounding::kUp : SmallRounding::kNearestEven, true);
}

}  // namespace onnxtrain
