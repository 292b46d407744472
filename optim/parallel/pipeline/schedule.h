// The order in which a stage of a pipeline computes the micro-batches of an update: one forward, one backward (1F1B).
//
// A stage runs as many micro-batches ahead as there are stages behind it, then one backward pass after every forward
// pass: no more than `InFlight` micro-batches are kept at a time, however many an update has. Source: Narayanan et al.,
// "PipeDream: Generalized Pipeline Parallelism for DNN Training" (2019), with a flush per update.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace onnxtrain {

struct PassOfMicro {
  bool backward = false;
  int64_t micro = 0;

  bool operator==(const PassOfMicro&) const = default;
};

// Returns how many micro-batches a stage keeps at a time.
inline int64_t InFlight(int stage, int stages, int64_t micros) { return std::min<int64_t>(stages - stage, micros); }

inline std::vector<PassOfMicro> OneForwardOneBackward(int stage, int stages, int64_t micros) {
  const int64_t ahead = InFlight(stage, stages, micros) - 1;
  std::vector<PassOfMicro> passes;
  for (int64_t i = 0; i < micros + ahead; ++i) {
    if (i < micros) passes.push_back({false, i});
    if (i >= ahead) passes.push_back({true, i - ahead});
  }
  return passes;
}

// Returns the share of an update in which a stage waits, where all take equal times.
inline double BubbleShare(int stages, int64_t micros) {
  return static_cast<double>(stages - 1) / static_cast<double>(micros + stages - 1);
}

}  // namespace onnxtrain
