// Formats numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace onnxtrain {

// 5625 → "5,625"
std::string FormatWithCommas(int64_t n);
// 1536 → "1.5 KiB"
std::string FormatBytes(double bytes);
// 75 → "1:15", 4000 → "1:06:40", 0.42 → "0.42 s"
std::string FormatSeconds(double seconds);
// 0.00042 → "420 µs", 0.0123 → "12.3 ms", 2.5 → "2.5 s": of something that repeats
std::string FormatDuration(double seconds);
// Four significant digits: 0.00012345 → "0.0001234"
std::string FormatNumber(double x);

}  // namespace onnxtrain
