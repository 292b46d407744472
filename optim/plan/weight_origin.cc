#include "optim/plan/weight_origin.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/strings.h"
#include "optim/step/fixed_tables.h"

namespace onnxtrain {
namespace {

struct Moments {
  double count = 0;                                     // sampled elements
  double mean = 0, std = 0, kurtosis = 0, largest = 0;  // largest: max |x - mean| / std
};

Moments ComputeMoments(const HostTensor& t) {
  // Large tensors are sampled, evenly.
  constexpr int64_t kEnough = 100'003;
  const int64_t step = std::max<int64_t>(1, t.size() / kEnough);
  const auto n = static_cast<double>((t.size() + step - 1) / step);
  Moments m{.count = n};
  for (int64_t i = 0; i < t.size(); i += step) m.mean += t.At(i) / n;
  double second = 0, fourth = 0, most = 0;
  for (int64_t i = 0; i < t.size(); i += step) {
    const double d = t.At(i) - m.mean;
    second += d * d / n;
    fourth += d * d * d * d / n;
    most = std::max(most, std::abs(d));
  }
  m.std = std::sqrt(second);
  if (m.std > 0) m.kurtosis = fourth / (second * second), m.largest = most / m.std;
  return m;
}

// Standard errors of an estimate from n draws; a model has many tensors, each of which must pass.
constexpr double kSigmas = 5;

// A uniform distribution has kurtosis 1.8 (its estimate spreads by about 0.9/√n) and ends at √3 deviations.
bool LooksUniform(const Moments& m, double n) {
  return std::abs(m.kurtosis - 1.8) < kSigmas * 0.9 / std::sqrt(n) + 0.02 && m.largest < 1.9;
}

// A normal one has kurtosis 3 (spread √(24/n)); cut off at two deviations, as TensorFlow likes it, about 2.4.
bool LooksNormal(const Moments& m, double n) {
  const double spread = kSigmas * std::sqrt(24 / n);
  return std::abs(m.kurtosis - 3) < spread + 0.02 || (std::abs(m.kurtosis - 2.37) < spread + 0.02 && m.largest < 2.4);
}

bool LooksInitialized(const HostTensor& t) {
  const Moments m = ComputeMoments(t);
  if (!std::isfinite(m.std)) return false;
  if (m.std == 0) return true;
  const double n = m.count;
  const bool centred = std::abs(m.mean) < kSigmas * m.std / std::sqrt(n);
  return centred && (LooksUniform(m, n) || LooksNormal(m, n));
}

}  // namespace

ModelOrigin ClassifyWeightOrigin(const std::vector<NamedWeight>& weights) {
  double drawn = 0, other = 0;
  for (const NamedWeight& w : weights) {
    // Running statistics are no evidence: an exporter that traces a new model in training mode moves them.
    if (!IsFloat(w.value.dtype()) || w.statistics) continue;
    constexpr int64_t kEnough = 200;
    // Neither are computed tables.
    if (w.value.type().rank() < 2 || w.value.size() < kEnough || IsSinusoidTable(w.value)) continue;
    (LooksInitialized(w.value) ? drawn : other) += static_cast<double>(w.value.size());
  }
  if (drawn + other == 0) return {false, "no weight is large enough to tell"};
  const int percent = static_cast<int>(std::lround(100 * other / (drawn + other)));
  if (other > drawn) return {true, StrCat(percent, "% of the weights are not distributed as initializers draw them")};
  return {false, StrCat(100 - percent, "% of the weights are distributed as initializers draw them")};
}

}  // namespace onnxtrain
