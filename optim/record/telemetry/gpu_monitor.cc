#include "optim/record/telemetry/gpu_monitor.h"

#include <dlfcn.h>

namespace onnxtrain {
namespace {

// The part of NVML's interface that is used, by its documentation (NVML API Reference Guide).
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

}  // namespace onnxtrain
