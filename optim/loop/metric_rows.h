// The tables of metrics.
#pragma once

#include <limits>
#include <span>

#include "optim/loop/metrics.h"

namespace onnxtrain {

inline constexpr double kUndefinedMetric = std::numeric_limits<double>::quiet_NaN();

std::span<const MetricRow> ClassMetrics();
std::span<const MetricRow> ValueMetrics();

}  // namespace onnxtrain
