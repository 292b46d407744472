#include "optim/plan/synthetic_batch.h"

#include <algorithm>

#include "frontend/ops/cost.h"
#include "optim/plan/model_setup.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMinBatch = 2;
constexpr double kStepFlops = 2e11;      // a second or two on two CPUs
constexpr double kBackwardFactor = 3.0;  // forward and backward pass, by the forward pass

bool ChoosesBatch(const TrainConfig& config) {
  const char* const fields[] = {"batch_size", "micro_batch_size", "gradient_accumulation_steps"};
  return std::ranges::any_of(fields, [&](const char* field) { return IsSpecified(config, field); });
}

// Floating-point operations of a training step for one sample; 0 where the model cannot be imported, which later stages
// report.
double StepFlops(PreparedModels& models, const PrepareOptions& options, int64_t batch) {
  const auto imported = models.ImportForward(options, batch, true, true);
  if (!imported.ok() && batch > 1) return StepFlops(models, options, 1);  // it may take one sample at a time
  if (!imported.ok()) return 0;
  const Graph& graph = (*imported)->graph;
  double flops = 0;
  for (const Node& node : graph.nodes()) flops += NodeFlops(graph, node);
  return flops * kBackwardFactor / static_cast<double>(batch);
}

}  // namespace

int64_t SyntheticBatchSize(const TrainConfig& config, PreparedModels& models, const PrepareOptions& options) {
  const OnnxModel& model = *models.model();
  int64_t batch = GlobalBatchSize(config, model, options.import.batch_axes);
  if (ChoosesBatch(config) || ExportedBatch(model, options.import.batch_axes) > 1) return batch;
  const double flops = StepFlops(models, options, batch);
  while (batch > kMinBatch && static_cast<double>(batch) * flops > kStepFlops) batch /= 2;
  return batch;
}

}  // namespace onnxtrain
