#include "backends/torch/scratch.h"

#include <algorithm>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "backends/torch/compat.h"

namespace onnxtrain::aten {
namespace {

class PeakReporter : public c10::MemoryReportingInfoBase {
 public:
  explicit PeakReporter(c10::Device device) : device_(device) {}

  void reportMemoryUsage(void* ptr, int64_t alloc_size, ReportedBytes total_allocated, ReportedBytes total_reserved,
                         c10::Device device) override {
    if (device.type() != device_.type()) return;
    live_ += alloc_size;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  c10::Device device_;
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace

size_t PeakScratch(c10::Device device, const std::function<void()>& run) {
  auto reporter = std::make_shared<PeakReporter>(device);
  {
    c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reporter);
    run();
  }
  return static_cast<size_t>(reporter->peak());
}

}  // namespace onnxtrain::aten
