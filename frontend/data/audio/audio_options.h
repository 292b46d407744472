// What sounds become: files of any rate, number of channels and length become samples of one shape.
#pragma once

#include <cstdint>

namespace onnxtrain {

// Zeros: as the first file has it, and all others must too.
struct AudioOptions {
  int64_t sample_rate = 0;  // Hz; other rates are resampled
  int64_t channels = 0;     // 1: several are averaged
  int64_t frames = 0;       // longer sounds are cut at their end, shorter ones padded with zeros
  double seconds = 0;       // the same in seconds, where frames is 0
};

}  // namespace onnxtrain
