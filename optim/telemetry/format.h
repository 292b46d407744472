// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace onnxtrain {

// 5625 → "5,625"
std::string WithCommas(int64_t n);
// 1536 → "1.5 KiB"
std::string ShownBytes(double bytes);
// 75 → "1:15", 4000 → "1:06:40", 0.42 → "0.42 s"
std::string ShownSeconds(double seconds);
// Four significant digits.
std::string Short(double x);

}  // namespace onnxtrain
