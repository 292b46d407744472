#include "optim/auto/threads.h"

#include <algorithm>
#include <cstdlib>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/ops/cost.h"
#include "optim/auto/micro_timer.h"
#include "optim/training_graph.h"

namespace onnxtrain {
namespace {

// Operations and four times the bytes of a micro-batch. Below the first, one thread computes it in the time that it
// takes to wake another; from the second on it takes milliseconds, which threads always shorten.
constexpr double kNoWork = 1e6, kMuchWork = 1e9;
constexpr double kAsFast = 1.05;  // of the fastest time

bool IsOpen(const TrainConfig& config) {
  return config.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr &&
         config.micro_batch_size != TrainConfig::kAuto && CpuCount() > 1;
}

double Work(const Graph& graph) {
  double work = 0;
  for (const Node& node : graph.nodes()) work += NodeFlops(graph, node) + 4 * NodeBytes(graph, node);
  return work;
}

absl::StatusOr<Graph> BuildMicroGraph(PreparedModels& models, const SessionOptions& options) {
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   models.Prepare(MakePrepareOptions(options), options.micro_batch, true, false));
  return BuildMicro(prepared.model, prepared.loss, options.loss, options.micro_batch, {});
}

absl::StatusOr<int> MeasureThreads(const Graph& graph, const BackendFactory& make_backend, TrainConfig config) {
  std::map<int, double> seconds;
  for (int threads = 1, all = CpuCount();; threads = std::min(2 * threads, all)) {
    config.threads = threads;
    ASSIGN_OR_RETURN(const auto backend, make_backend(config));
    ASSIGN_OR_RETURN(const std::vector<double> times, MicroTimer(graph, {}, 0, *backend).Time(DType::kFloat32));
    seconds[threads] = times[times.size() / 2];  // not the best: on a busy machine the next thread usually comes late
    if (threads == all) return FewestFastThreads(seconds);
  }
}

}  // namespace

int FewestFastThreads(const std::map<int, double>& seconds) {
  const auto by_seconds = [](const auto& a, const auto& b) { return a.second < b.second; };
  const double fastest = std::ranges::min_element(seconds, by_seconds)->second;
  return std::ranges::find_if(seconds, [&](const auto& s) { return s.second <= kAsFast * fastest; })->first;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendForModel(const std::shared_ptr<PreparedModels>& models,
                                                             const SessionOptions& options,
                                                             const BackendFactory& make_backend, TrainConfig* config) {
  const bool open = IsOpen(*config);  // the factory may set the variable
  ASSIGN_OR_RETURN(auto backend, make_backend(*config));
  if (backend->name() != "cpu" || !open) return backend;
  ASSIGN_OR_RETURN(const Graph graph, BuildMicroGraph(*models, options));
  const double work = Work(graph);
  if (work >= kMuchWork) return backend;
  int threads = 1;
  if (work >= kNoWork) {
    ASSIGN_OR_RETURN(threads, MeasureThreads(graph, make_backend, *config));
  }
  config->threads = threads;
  return make_backend(*config);
}

}  // namespace onnxtrain
