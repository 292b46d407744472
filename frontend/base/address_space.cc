#include "frontend/base/address_space.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace onnxtrain {

double AvailableAddressSpace() {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNone;
  std::ifstream file("/proc/self/statm");
  double pages;
  if (!(file >> pages)) return kNone;
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
}

}  // namespace onnxtrain
