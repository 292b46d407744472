// Differences between two sets of named tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain::cli {

struct Difference {
  std::string name;
  Type type;
  double largest = 0;   // max |a - b|; infinite where one is finite and the other not, or shapes differ
  double relative = 0;  // ‖a - b‖₂ / ‖b‖₂; largest where ‖b‖ is 0
};

Difference CompareTensors(const std::string& name, const HostTensor& a, const HostTensor& b);

// Of the names that both have, largest relative difference first.
std::vector<Difference> CompareTensorMaps(const std::map<std::string, HostTensor>& a,
                                          const std::map<std::string, HostTensor>& b);

}  // namespace onnxtrain::cli
