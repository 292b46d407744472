#include "tools/onnxtrain/environment.h"

#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace onnxtrain::cli {
namespace {

int AffinityCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));  // more CPUs than the set has bits
}

// quota / period of one cgroup file pair, or infinity.
double QuotaOf(const std::string& folder) {
  std::string quota;
  double period = 0;
  if (std::ifstream file(folder + "/cpu.max"); file >> quota >> period && quota != "max" && period > 0) {
    return std::atof(quota.c_str()) / period;
  }
  double microseconds = 0;
  std::ifstream old_quota(folder + "/cpu.cfs_quota_us"), old_period(folder + "/cpu.cfs_period_us");
  if (old_quota >> microseconds && old_period >> period && microseconds > 0 && period > 0) return microseconds / period;
  return INFINITY;
}

// The least quota on the way from this process's group to the root; version 2 and version 1 of cgroups.
double CgroupCpus() {
  double least = std::min(QuotaOf("/sys/fs/cgroup"), QuotaOf("/sys/fs/cgroup/cpu"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos) continue;
    const bool second = line.starts_with("0::");
    if (!second && line.find(":cpu") == std::string::npos && line.find(",cpu:") == std::string::npos) continue;
    std::string group = line.substr(path);
    for (; group.size() > 1; group.resize(group.rfind('/'))) {
      least = std::min(least, QuotaOf((second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu") + group));
      if (group.rfind('/') == 0) break;
    }
  }
  return least;
}

bool HasAvx512() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }

std::atomic<bool> stop_asked{false};
constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

std::atomic<int64_t> asked_at{0};  // milliseconds

int64_t Milliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1000000;
}

// A terminal or a job manager may signal the process and its group: what comes at the same time is one signal.
extern "C" void OnStop(int number) {
  constexpr int64_t kSameSignal = 300;
  if (!stop_asked.exchange(true)) {
    asked_at.store(Milliseconds());
  } else if (Milliseconds() - asked_at.load() > kSameSignal) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

}  // namespace

int UsableCpus() {
  const double quota = CgroupCpus();
  const int cpus = AffinityCpus();
  return quota < cpus ? std::max(1, static_cast<int>(std::ceil(quota))) : cpus;
}

int ChooseThreads(int wanted) {
  if (wanted > 0) return wanted;
  const char* set = std::getenv("OMP_NUM_THREADS");
  const int threads = set == nullptr ? 0 : std::atoi(set);
  return threads > 0 ? threads : UsableCpus();
}

void SetEnvironment(int threads) {
  const std::string count = std::to_string(threads);
  setenv("OMP_NUM_THREADS", count.c_str(), 1);  // --threads wins over what the user's environment says
  setenv("OPENBLAS_NUM_THREADS", count.c_str(), 0);
  // A waiting thread spins for about a tenth of a millisecond, then sleeps: waking one takes as long, and a small model's step
  // has a hundred parallel loops; but it must not keep a CPU from OpenBLAS's own pool or from the loader.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "20000", 0);
  setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  if (HasAvx512()) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

const std::atomic<bool>* CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStop;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int s : kStops) sigaction(s, &action, nullptr);
  return &stop_asked;
}

}  // namespace onnxtrain::cli
