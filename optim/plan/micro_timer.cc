#include "optim/plan/micro_timer.h"

#include <algorithm>
#include <chrono>

#include "frontend/base/status.h"
#include "optim/step/program/programs.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

// Allocates the weights of a graph as zeros, which take as long as any numbers.
absl::Status AllocateWeights(const Graph& graph, Backend& backend, Arena* weights) {
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind != InputKind::kFeed) weights->Add(input.name, graph.type(input.value));
  }
  return weights->Allocate(backend, "weights");
}

absl::StatusOr<std::vector<double>> MeasureSeconds(Programs& programs, CompiledProgram& program, Backend& backend) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  double total = 0;
  constexpr double kEnough = 0.3;
  while (seconds.size() < 20 && total < kEnough) {
    const auto begin = Clock::now();
    RETURN_IF_ERROR(programs.Run(program));
    RETURN_IF_ERROR(backend.Synchronize());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace

absl::StatusOr<Graph> BuildMicroGraph(PreparedModels& models, const SessionOptions& options) {
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   models.Prepare(MakePrepareOptions(options), options.micro_batch, true, false));
  return BuildMicro(prepared.model, prepared.loss, options.loss, options.micro_batch, {});
}

absl::StatusOr<std::vector<double>> MicroTimer::Time(DType compute) const {
  Arena weights;
  RETURN_IF_ERROR(AllocateWeights(graph_, backend_, &weights));
  Bindings state;
  for (const std::string& name : weights.names()) state[name] = weights.At(name);
  Programs programs(&backend_, compute, false, recompute_,
                    {.other_bytes = [this] { return static_cast<size_t>(session_bytes_); }});
  ASSIGN_OR_RETURN(const auto program, programs.Compile(graph_, {}, state));
  RETURN_IF_ERROR(programs.Run(*program));  // the first run faults memory in
  return MeasureSeconds(programs, *program, backend_);
}

}  // namespace onnxtrain
