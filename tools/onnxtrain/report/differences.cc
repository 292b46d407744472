#include "tools/onnxtrain/report/differences.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "frontend/base/strings.h"

namespace onnxtrain::cli {

NamedArrays NamedResults(const GradientResult& result) {
  constexpr char kLoss[] = "loss";
  std::set<std::string> others = {kLoss};
  for (const auto& [name, value] : result.gradients) others.insert(kGradPrefix + name);
  for (const auto& [name, value] : result.input_gradients) others.insert(kGradPrefix + name);
  NamedArrays named = {{kLoss, HostTensor::Scalar(DType::kFloat64, result.loss)}};
  for (const auto& [output, value] : result.outputs) {
    std::string name = output;
    while (others.contains(name) || (name != output && result.outputs.contains(name))) name = StrCat("output:", name);
    named.emplace_back(name, value);
  }
  for (const auto* gradients : {&result.gradients, &result.input_gradients}) {
    for (const auto& [name, value] : *gradients) named.emplace_back(kGradPrefix + name, value);
  }
  return named;
}

Difference CompareTensors(const std::string& name, const HostTensor& a, const HostTensor& b) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Difference d{.name = name, .type = b.type()};
  if (a.size() != b.size()) {
    d.largest = d.relative = kInf;
    return d;
  }
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.At(i), y = b.At(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) {
      if (std::isfinite(y)) norm += y * y;
      continue;
    }
    const double apart = std::isfinite(x) && std::isfinite(y) ? std::abs(x - y) : kInf;
    d.largest = std::max(d.largest, apart);
    difference += apart * apart;
    norm += y * y;
  }
  d.relative = d.largest == kInf ? kInf : norm > 0 ? std::sqrt(difference / norm) : d.largest;
  return d;
}

namespace {

double GradientNorm(const std::map<std::string, HostTensor>& values) {
  double total = 0;
  for (const auto& [name, value] : values) {
    if (!name.starts_with(kGradPrefix)) continue;
    for (int64_t i = 0; i < value.size(); ++i) total += value.At(i) * value.At(i);
  }
  return std::sqrt(total);
}

// A gradient counts as no smaller than a thousandth of all gradients.
void MeasureAgainstAll(double norm, Difference* d) {
  if (!d->name.starts_with(kGradPrefix) || !std::isfinite(d->relative) || norm == 0) return;
  d->relative = std::min(d->relative, d->largest * std::sqrt(static_cast<double>(d->type.elements())) / (1e-3 * norm));
}

}  // namespace

std::vector<Difference> CompareTensorMaps(const std::map<std::string, HostTensor>& a,
                                          const std::map<std::string, HostTensor>& b) {
  const double norm = GradientNorm(b);
  std::vector<Difference> all;
  for (const auto& [name, value] : a) {
    const auto it = b.find(name);
    if (it == b.end()) continue;
    all.push_back(CompareTensors(name, value, it->second));
    MeasureAgainstAll(norm, &all.back());
  }
  return all;
}

void JudgeDifferences(const std::vector<std::vector<Difference>>& moves, std::vector<Difference>* differences) {
  std::map<std::string, double> nudged;
  for (const auto& all : moves) {
    for (const Difference& d : all) nudged[d.name] = std::max(nudged[d.name], d.relative);
  }
  for (Difference& d : *differences) {
    d.nudged = nudged[d.name];
    d.allowed =
        d.nudged > kJudgeable ? std::numeric_limits<double>::infinity() : std::max(kRounding, kSpread * d.nudged);
  }
  const auto excess = [](const Difference& d) { return d.judged() ? d.relative / d.allowed : -1; };
  std::ranges::stable_sort(*differences, std::ranges::greater(), excess);
}

HostTensor Nudge(const HostTensor& tensor, uint64_t seed, bool keep_whole) {
  if (!IsFloat(tensor.dtype())) return tensor;
  std::mt19937_64 random(seed);
  HostTensor moved(tensor.type());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = tensor.At(i), unit = static_cast<double>(random() >> 11) * 0x1p-52 - 1;  // in [-1, 1)
    moved.Set(i, keep_whole && x == std::trunc(x) ? x : x * (1 + kNudgeUlps * 0x1p-23 * unit));
  }
  return moved;
}

}  // namespace onnxtrain::cli
