// GPUs, by an NVML that the test builds.
#include "optim/record/telemetry/resources.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

class GpuMonitorTest : public Scratch {
 protected:
  // Builds a library from C and returns its path.
  std::string Build(const std::string& source) const {
    std::ofstream(Path("nvml.c")) << source;
    const std::string path = Path("libnvidia-ml.so.1");
    const std::string command = StrCat("gcc -shared -fPIC -o ", path, " ", Path("nvml.c"));
    EXPECT_EQ(std::system(command.c_str()), 0);
    return path;
  }
};

constexpr char kTwoGpus[] = R"(
struct utilization { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) { *device = (char*)0 + i + 1; return 0; }
int nvmlDeviceGetUtilizationRates(void* d, struct utilization* u) { u->gpu = 40 * ((char*)d - (char*)0); return 0; }
int nvmlDeviceGetMemoryInfo(void* d, struct memory* m) { m->used = 3ull << 30; return 0; }
int nvmlDeviceGetPowerUsage(void* d, unsigned* milliwatts) { *milliwatts = 250500; return 0; }
int nvmlDeviceGetTemperature(void* d, int sensor, unsigned* celsius) {
  *celsius = 61;
  return d == (char*)0 + 2 ? 3 : 0;
}
)";

TEST_F(GpuMonitorTest, ReadsEveryGpu) {
  const auto monitor = GpuMonitor::Create(Build(kTwoGpus));
  ASSERT_NE(monitor, nullptr);
  const std::vector<GpuReading> gpus = monitor->Take();
  ASSERT_EQ(gpus.size(), 2);
  EXPECT_EQ(gpus[0].utilization, 0.4);
  EXPECT_EQ(gpus[1].utilization, 0.8);
  EXPECT_EQ(gpus[0].memory_bytes, int64_t{3} << 30);
  EXPECT_EQ(gpus[0].watts, 250.5);
  EXPECT_EQ(gpus[0].celsius, 61);
  EXPECT_EQ(gpus[1].celsius, 0);  // its sensor fails
}

TEST_F(GpuMonitorTest, NoneIsNoError) {
  EXPECT_EQ(GpuMonitor::Create(Path("missing.so")), nullptr);
  EXPECT_EQ(GpuMonitor::Create(Build("int nvmlInit_v2(void) { return 0; }\n")), nullptr);  // too old
  std::string none = kTwoGpus;
  none.replace(none.find("*count = 2"), 10, "*count = 0");
  EXPECT_EQ(GpuMonitor::Create(Build(none)), nullptr);
  std::string fails = kTwoGpus;
  fails.replace(fails.find("{ return 0; }"), 13, "{ return 9; }");  // no driver
  EXPECT_EQ(GpuMonitor::Create(Build(fails)), nullptr);
}

}  // namespace
}  // namespace onnxtrain
