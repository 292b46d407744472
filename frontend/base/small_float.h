// Floats of 8 and 4 bits <-> float64 (OCP 8-bit floating point, 2023; OCP Microscaling formats, 2023; Micikevicius et al.,
// 2022, arXiv:2209.05433; Noune et al., 2022, arXiv:2206.02915 for the …FNUZ forms). ONNX's Cast says how values round.
#pragma once

#include <cstdint>
#include <vector>

namespace onnxtrain {

enum class SmallFloat : uint8_t { kE4M3FN, kE4M3FNUZ, kE5M2, kE5M2FNUZ, kE8M0, kE2M1 };
inline constexpr int kSmallFloats = 6;

enum class SmallRounding : uint8_t {
  kNearestEven,
  kUp, kDown,   // away from zero, towards zero
  kNearestUp,   // to the nearest, ties away from zero
};

// The value of a code; the bits above a 4-bit code are ignored.
float SmallToFloat(SmallFloat format, uint8_t code);

// How magnitudes become codes. The codes of a format rise with the magnitude, so a sorted list of the magnitudes at which
// the code grows by one says it all, for any rounding; backends search the same list.
struct SmallEncoding {
  std::vector<double> boundaries;  // the code is the number of boundaries ≤ the magnitude
  double lowest = 0;               // a smaller magnitude becomes NaN
  uint8_t sign = 0x80;             // what a negative number adds; 0: it becomes NaN
  uint8_t nan = 0x7f;
  bool negative_zero = true;       // does -0 keep its sign?

  uint8_t Encode(double value) const;
};

// Saturating, numbers that are too large become the largest; else infinity or NaN, whatever the format has. E2M1 has
// neither and always saturates. Lives for ever.
const SmallEncoding& EncodingOf(SmallFloat format, SmallRounding rounding, bool saturate);
// ONNX's default: saturating; to nearest even, E8M0 up.
const SmallEncoding& EncodingOf(SmallFloat format);

}  // namespace onnxtrain
