// Finds values of an update that are far above those of the updates before it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace onnxtrain {

// An update whose loss or gradient norm is an outlier.
struct Outlier {
  enum class Of : uint8_t { kLoss, kGradNorm } of = Of::kLoss;
  int64_t step = 0;
  double value = 0, median = 0;  // of the update, and of those before it
};

// The last values and the limit that follows from them: the median plus ten standard deviations, estimated by the
// median absolute deviation, and at least half of the median more. What is in a heavy tail is no outlier: the limit is
// at least six times as far from the median as the greatest tenth.
class OutlierWindow {
 public:
  // Returns the median where the value is an outlier. Every value counts for the limit of later ones, which is computed
  // after every 16 values. NaN and infinities are left out.
  std::optional<double> Add(double value);

  // The state, for a run that continues.
  std::vector<double> values;  // the last 64, in a ring
  int64_t count = 0;           // of all values
  double median = 0, limit = 0;

 private:
  void UpdateLimit();
};

}  // namespace onnxtrain
