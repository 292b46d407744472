// The tables of metrics.
#pragma once

#include <span>

#include "optim/metrics.h"

namespace onnxtrain {

std::span<const MetricRow> ClassMetrics();
std::span<const MetricRow> ValueMetrics();

}  // namespace onnxtrain
