// A CPU that the process may use, for `taskset -c`.
#pragma once

#include <sched.h>

namespace onnxtrain {

inline int FirstCpu() {
  cpu_set_t set;
  int cpu = 0;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &set)) ++cpu;
  }
  return cpu;
}

}  // namespace onnxtrain
