// Prints the time of each kernel of the cpu backend, of oneDNN's primitives for the same operation, and their ratio:
//
//   bench_kernels --benchmark_enable_random_interleaving=true [--benchmark_filter=pool]
//
// All flags of google-benchmark apply. Times are medians of five repetitions; with the argument "smoke", of one run
// each, which only shows that every benchmark works.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/bench/run_node.h"
#include "backends/cpu/ops/ops.h"

namespace onnxtrain::bench {
namespace {

constexpr char kOwn[] = "own", kOneDnn[] = "oneDNN";

bool smoke = false;  // true if the argument "smoke" was given

std::map<std::string, double>& OperationsOf() {
  static auto* operations = new std::map<std::string, double>;  // by comparison
  return *operations;
}

void Register(const std::string& name, Prepare prepare) {
  benchmark::internal::Benchmark* benchmark =
      benchmark::RegisterBenchmark(name.c_str(), [prepare = std::move(prepare)](benchmark::State& state) {
        const Run run = prepare();
        run();
        for (auto _ : state) run();
      });
  benchmark->UseRealTime();
  if (smoke) {
    benchmark->Iterations(1);
  } else {
    benchmark->MinTime(0.1)->Repetitions(5);
  }
}

// Removes "smoke" from the arguments.
void ParseSmoke(int* argc, char** argv) {
  char** end = std::remove_if(argv + 1, argv + *argc, [](const char* arg) { return std::string_view(arg) == "smoke"; });
  smoke = end != argv + *argc;
  *argc = static_cast<int>(end - argv);
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
    std::printf("%-48s %12s %12s %7s %9s\n", "kernel", "own µs", "oneDNN µs", "ratio", "own GF/s");
    for (auto& [name, times] : microseconds_) {
      std::printf("%-48s %11.1f %11.1f %7.2f", name.c_str(), times[kOwn], times[kOneDnn], times[kOwn] / times[kOneDnn]);
      const double operations = OperationsOf()[name];
      operations == 0 ? std::printf("\n") : std::printf(" %9.0f\n", operations / times[kOwn] / 1e3);
    }
  }

 private:
  std::map<std::string, std::map<std::string, double>> microseconds_;  // by comparison, by implementation
};

}  // namespace

void Compare(const std::string& name, Prepare own, Prepare onednn, double operations) {
  OperationsOf()[name] = operations;
  Register(name + "/" + kOwn, std::move(own));
  Register(name + "/" + kOneDnn, std::move(onednn));
}

}  // namespace onnxtrain::bench

int main(int argc, char** argv) {
  using namespace onnxtrain::bench;  // NOLINT(google-build-using-namespace)
  ParseSmoke(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;

  onnxtrain::cpu::RegisterCpuOps();
  for (auto compare : {CompareConvWeightGrad, ComparePool, CompareBatchNorm, ComparePack, CompareAttention,
                       CompareDequantize, CompareLoop, CompareProduct})
    compare();
  RatioReporter reporter;
  // Fails if the filter matches no benchmark.
  return benchmark::RunSpecifiedBenchmarks(&reporter) > 0 ? 0 : 1;
}
