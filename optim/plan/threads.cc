#include "optim/plan/threads.h"

#include <algorithm>
#include <cstdlib>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/ops/cost.h"
#include "optim/plan/micro_batch.h"

namespace onnxtrain {
namespace {

// Thresholds of work, counted as operations plus four times the bytes. Work below kNoWork takes one thread no longer
// than waking another. A micro-batch of kMuchWork takes milliseconds, which threads always shorten. Kernels never share
// a node below kShareable among threads, even with other nodes fused into it.
constexpr double kNoWork = 1e6, kMuchWork = 1e9, kShareable = 2e4;
constexpr size_t kManyNodes = 5000;
constexpr double kAsFast = 1.05;  // tolerance relative to the fastest time

bool IsOpen(const TrainConfig& config) {
  return config.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr &&
         config.micro_batch_size != TrainConfig::kAuto && CpuCount() > 1;
}

absl::StatusOr<int> MeasureThreads(const Graph& graph, const BackendFactory& make_backend, TrainConfig config) {
  std::map<int, double> seconds;
  for (int threads = 1, all = CpuCount();; threads = std::min(2 * threads, all)) {
    config.threads = threads;
    ASSIGN_OR_RETURN(const auto backend, make_backend(config));
    ASSIGN_OR_RETURN(const std::vector<double> times, MicroTimer(graph, {}, 0, *backend).Time(DType::kFloat32));
    // The median, not the minimum: on a busy machine the next thread usually starts late.
    seconds[threads] = times[times.size() / 2];
    if (threads == all) return FewestFastThreads(seconds);
  }
}

// Returns 0 if the variable is not set.
int NumberIn(const char* variable) {
  const char* set = std::getenv(variable);
  return set == nullptr ? 0 : std::atoi(set);
}

int WantedThreads(const TrainConfig& config) {
  return config.threads > 0 ? static_cast<int>(config.threads) : NumberIn("OMP_NUM_THREADS");
}

}  // namespace

int ComputeThreads(const TrainConfig& config) {
  const int wanted = WantedThreads(config), limit = NumberIn("OMP_THREAD_LIMIT");
  const int cpus = limit > 0 ? std::min(limit, CpuCount()) : CpuCount();
  return wanted <= 0 ? cpus : std::min(wanted, cpus);
}

std::string DescribeThreadLimit(const TrainConfig& config) {
  const int wanted = WantedThreads(config);
  if (wanted <= CpuCount()) return "";
  return StrCat(config.threads > 0 ? "`threads`" : "OMP_NUM_THREADS", " ", wanted, ": there are ", CpuCount(),
                " CPUs, so ", ComputeThreads(config), " threads are used");
}

int FewestFastThreads(const std::map<int, double>& seconds) {
  const auto by_seconds = [](const auto& a, const auto& b) { return a.second < b.second; };
  const double fastest = std::ranges::min_element(seconds, by_seconds)->second;
  return std::ranges::find_if(seconds, [&](const auto& s) { return s.second <= kAsFast * fastest; })->first;
}

std::optional<int> ThreadsByWork(const Graph& micro) {
  double work = 0, large = 0;
  for (const Node& node : micro.nodes()) {
    const double of_node = NodeFlops(micro, node) + 4 * NodeBytes(micro, node);
    work += of_node < kShareable ? 0 : of_node;
    large += of_node < kNoWork ? 0 : of_node;
  }
  if (work < kNoWork) return 1;
  if (micro.nodes().size() > kManyNodes) return 2 * large >= work ? 0 : 1;
  return work >= kMuchWork ? std::optional(0) : std::nullopt;
}

// Returns the number of threads if the forward pass alone decides it, without differentiation: the backward pass only
// adds work, and its large nodes are similar to those of the forward pass.
static std::optional<int> ThreadsByForwardPass(const Graph& forward) {
  const std::optional<int> threads = ThreadsByWork(forward);
  return threads == 0 || forward.nodes().size() > kManyNodes ? threads : std::nullopt;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendForModel(const std::shared_ptr<PreparedModels>& models,
                                                             const SessionOptions& options,
                                                             const BackendFactory& make_backend,
                                                             const TrainConfig& config, int64_t* threads) {
  const bool open = IsOpen(config);  // read before the factory may set the variable
  ASSIGN_OR_RETURN(auto backend, make_backend(config));
  if (backend->name() != "cpu" || !open) return backend;
  ASSIGN_OR_RETURN(const auto forward,
                   models->ImportForward(MakePrepareOptions(options), options.micro_batch, true, false));
  std::optional<int> fewest = ThreadsByForwardPass(forward->graph);
  if (!fewest) {
    ASSIGN_OR_RETURN(const Graph graph, BuildMicroGraph(*models, options));
    fewest = ThreadsByWork(graph);
    if (!fewest) {
      ASSIGN_OR_RETURN(fewest, MeasureThreads(graph, make_backend, config));
    }
  }
  if (fewest == 0) return backend;
  *threads = *fewest;
  TrainConfig chosen = config;
  chosen.threads = *fewest;
  return make_backend(chosen);
}

}  // namespace onnxtrain
