#include "tools/onnxtrain/report/differences.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace onnxtrain::cli {

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

std::vector<Difference> CompareTensorMaps(const std::map<std::string, HostTensor>& a,
                                          const std::map<std::string, HostTensor>& b) {
  std::vector<Difference> all;
  for (const auto& [name, value] : a) {
    if (const auto it = b.find(name); it != b.end()) all.push_back(CompareTensors(name, value, it->second));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Difference& x, const Difference& y) { return x.relative > y.relative; });
  return all;
}

}  // namespace onnxtrain::cli
