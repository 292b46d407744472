// Prints the time of each kernel of the cpu backend, of oneDNN's primitives for the same operation, and their ratio:
//
//   bench_kernels --benchmark_enable_random_interleaving=true [--benchmark_filter=pool]
//
// All flags of google-benchmark apply. Times are medians of five repetitions.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "backends/cpu/bench/compare.h"
#include "backends/cpu/ops/ops.h"

namespace onnxtrain::bench {
namespace {

constexpr char kOwn[] = "own", kOneDnn[] = "oneDNN";

void Register(const std::string& name, Prepare prepare) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [prepare = std::move(prepare)](benchmark::State& state) {
                                 const Run run = prepare();
                                 run();
                                 for (auto _ : state) run();
                               })
      ->UseRealTime()
      ->MinTime(0.1)
      ->Repetitions(5);
}

// Prints one line per comparison.
class RatioReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<benchmark::BenchmarkReporter::Run>& runs) override {
    for (const auto& run : runs) {
      if (run.aggregate_name != "median" && run.repetitions > 1) continue;
      const std::string& name = run.run_name.function_name;
      const size_t slash = name.rfind('/');
      microseconds_[name.substr(0, slash)][name.substr(slash + 1)] = run.GetAdjustedRealTime() / 1e3;
    }
  }

  void Finalize() override {
    std::printf("%-48s %12s %12s %7s\n", "kernel", "own µs", "oneDNN µs", "ratio");
    for (auto& [name, times] : microseconds_) {
      std::printf("%-48s %11.1f %11.1f %7.2f\n", name.c_str(), times[kOwn], times[kOneDnn],
                  times[kOwn] / times[kOneDnn]);
    }
  }

 private:
  std::map<std::string, std::map<std::string, double>> microseconds_;  // by comparison, by implementation
};

}  // namespace

void Compare(const std::string& name, Prepare own, Prepare onednn) {
  Register(name + "/" + kOwn, std::move(own));
  Register(name + "/" + kOneDnn, std::move(onednn));
}

}  // namespace onnxtrain::bench

int main(int argc, char** argv) {
  using namespace onnxtrain::bench;  // NOLINT(google-build-using-namespace)
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;

  onnxtrain::cpu::RegisterCpuOps();
  for (auto compare : {CompareConvWeightGrad, ComparePool, CompareBatchNorm, ComparePack, CompareAttention}) compare();
  RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
}
