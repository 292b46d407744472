#include "optim/record/telemetry/resources.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace onnxtrain {
namespace {

// Declares the part of NVML's interface that is used (NVML API Reference Guide).
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};
using Handle = void*;
constexpr int kSuccess = 0, kGpuSensor = 0;

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned* count) = nullptr;
  int (*handle)(unsigned index, Handle* device) = nullptr;
  int (*utilization)(Handle device, NvmlUtilization* rates) = nullptr;
  int (*memory)(Handle device, NvmlMemory* memory) = nullptr;
  int (*power)(Handle device, unsigned* milliwatts) = nullptr;
  int (*temperature)(Handle device, int sensor, unsigned* celsius) = nullptr;
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool FindAll(void* library, Nvml* n) {
  return Find(library, "nvmlInit_v2", &n->init) && Find(library, "nvmlShutdown", &n->shutdown) &&
         Find(library, "nvmlDeviceGetCount_v2", &n->count) &&
         Find(library, "nvmlDeviceGetHandleByIndex_v2", &n->handle) &&
         Find(library, "nvmlDeviceGetUtilizationRates", &n->utilization) &&
         Find(library, "nvmlDeviceGetMemoryInfo", &n->memory) && Find(library, "nvmlDeviceGetPowerUsage", &n->power) &&
         Find(library, "nvmlDeviceGetTemperature", &n->temperature);
}

class NvmlMonitor : public GpuMonitor {
 public:
  NvmlMonitor(void* library, const Nvml& nvml) : library_(library), nvml_(nvml) {
    unsigned count = 0;
    if (nvml_.count(&count) != kSuccess) count = 0;
    for (unsigned i = 0; i < count; ++i) {
      Handle device = nullptr;
      if (nvml_.handle(i, &device) == kSuccess) devices_.push_back(device);
    }
  }
  ~NvmlMonitor() override {
    nvml_.shutdown();
    dlclose(library_);
  }
  NvmlMonitor(const NvmlMonitor&) = delete;
  NvmlMonitor& operator=(const NvmlMonitor&) = delete;

  bool empty() const { return devices_.empty(); }

  std::vector<GpuReading> Take() override {
    std::vector<GpuReading> readings;
    for (const Handle device : devices_) readings.push_back(Read(device));
    return readings;
  }

 private:
  GpuReading Read(Handle device) const {
    GpuReading reading;
    NvmlUtilization rates{};
    NvmlMemory memory{};
    unsigned milliwatts = 0, celsius = 0;
    if (nvml_.utilization(device, &rates) == kSuccess) reading.utilization = rates.gpu / 100.0;
    if (nvml_.memory(device, &memory) == kSuccess) reading.memory_bytes = static_cast<int64_t>(memory.used);
    if (nvml_.power(device, &milliwatts) == kSuccess) reading.watts = milliwatts / 1000.0;
    if (nvml_.temperature(device, kGpuSensor, &celsius) == kSuccess) reading.celsius = celsius;
    return reading;
  }

  void* library_;
  Nvml nvml_;
  std::vector<Handle> devices_;
};

}  // namespace

std::unique_ptr<GpuMonitor> GpuMonitor::Create(const std::string& library) {
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  Nvml nvml;
  if (loaded == nullptr || !FindAll(loaded, &nvml) || nvml.init() != kSuccess) {
    if (loaded != nullptr) dlclose(loaded);
    return nullptr;
  }
  auto monitor = std::make_unique<NvmlMonitor>(loaded, nvml);
  if (monitor->empty()) return nullptr;
  return monitor;
}

namespace {

using Clock = std::chrono::steady_clock;

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Returns a KiB value of /proc/self/status in bytes.
int64_t StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return int64_t{1024} * std::atoll(line.c_str() + key.size());
  }
  return 0;
}

// Holds the beginning of a small file of /proc on the stack, so that readings during training allocate nothing.
using ProcText = std::array<char, 512>;
ProcText ReadProc(const char* path) {
  ProcText text{};
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  const ssize_t size = read(fd, text.data(), text.size() - 1);
  close(fd);
  if (size < 0) text[0] = 0;
  return text;
}

// Reads the second number of /proc/self/statm, which is in pages.
int64_t ResidentBytes() {
  const ProcText text = ReadProc("/proc/self/statm");
  const char* second = std::strchr(text.data(), ' ');
  return second != nullptr ? std::atoll(second) * sysconf(_SC_PAGESIZE) : 0;
}

// Reads a line such as "read_bytes: 4096" of /proc/self/io.
double IoBytes(const ProcText& io, const char* key) {
  const char* line = std::strstr(io.data(), key);
  return line != nullptr ? std::atof(line + std::strlen(key)) : 0;
}

// Reads the first line of /proc/stat: ticks of all CPUs in user, nice, system, idle, iowait, irq, softirq, steal.
double MachineCpuSeconds() {
  const ProcText text = ReadProc("/proc/stat");
  const char* at = text.data() + (text[0] == 0 ? 0 : std::strlen("cpu"));
  double busy = 0;
  for (int field = 0; field < 8; ++field) {
    char* end = nullptr;
    const double ticks = std::strtod(at, &end);
    const bool idle = field == 3 || field == 4;
    if (!idle) busy += ticks;
    at = end;
  }
  return busy / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Reads the second number of schedstat: nanoseconds that this thread waited on a run queue.
double QueuedSeconds() {
  const ProcText text = ReadProc("/proc/thread-self/schedstat");
  const char* second = std::strchr(text.data(), ' ');
  return second != nullptr ? 1e-9 * std::atof(second) : 0;
}

// Bounds the number of busy CPUs: over short times, ticks of ten milliseconds can suggest more than there are.
double OnlineCpus() { return static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

}  // namespace

ResourceMonitor::Totals ResourceMonitor::ReadTotals() {
  const ProcText io = ReadProc("/proc/self/io");
  return {.cpu_seconds = CpuSeconds(),
          .machine_cpu_seconds = MachineCpuSeconds(),
          .read_bytes = IoBytes(io, "\nread_bytes:"),
          .written_bytes = IoBytes(io, "\nwrite_bytes:"),
          .queued_seconds = QueuedSeconds()};
}

ResourceMonitor::ResourceMonitor() : taken_at_(Clock::now()), totals_(ReadTotals()), gpus_(GpuMonitor::Create()) {}

ResourceReading ResourceMonitor::Take() {
  const Clock::time_point now = Clock::now();
  const Totals totals = ReadTotals();
  const double seconds = std::max(1e-9, std::chrono::duration<double>(now - taken_at_).count());
  const auto rate = [&](double Totals::*total) { return std::max(0.0, totals.*total - totals_.*total) / seconds; };
  ResourceReading reading{.busy_cpus = rate(&Totals::cpu_seconds),
                          .resident_bytes = ResidentBytes(),
                          .machine_busy_cpus = std::min(rate(&Totals::machine_cpu_seconds), OnlineCpus()),
                          .queued_share = std::min(rate(&Totals::queued_seconds), 1.0),
                          .disk_read_rate = rate(&Totals::read_bytes),
                          .disk_write_rate = rate(&Totals::written_bytes)};
  if (gpus_ != nullptr) reading.gpus = gpus_->Take();
  taken_at_ = now;
  totals_ = totals;
  return reading;
}

// Avoids getrusage, whose peak survives exec and would include the parent's.
int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }

}  // namespace onnxtrain
