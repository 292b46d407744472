#include "optim/auto/synthetic_batch.h"

#include <algorithm>

#include "frontend/ops/cost.h"
#include "frontend/ops/import/onnx_import.h"
#include "optim/auto/model_setup.h"

namespace onnxtrain {
namespace {

constexpr int64_t kTracedBatch = 2;
constexpr double kStepFlops = 2e11;      // a second or two on two CPUs
constexpr double kBackwardFactor = 3.0;  // forward and backward pass, by the forward pass

bool ChoosesBatch(const TrainConfig& config) {
  const char* const fields[] = {"batch_size", "micro_batch_size", "gradient_accumulation_steps"};
  return std::ranges::any_of(fields, [&](const char* field) { return IsSpecified(config, field); });
}

// Floating-point operations of a training step for one sample; 0 where the model cannot be imported, which later stages
// report.
double StepFlops(const OnnxModel& model, ImportOptions options) {
  options.batch = kTracedBatch;
  for (auto& [name, shape] : options.input_shapes) std::ranges::replace(shape, int64_t{-1}, kTracedBatch);
  const auto imported = Import(model, options);
  if (!imported.ok()) return 0;
  double flops = 0;
  for (const Node& node : imported->graph.nodes()) flops += NodeFlops(imported->graph, node);
  return flops * kBackwardFactor / kTracedBatch;
}

}  // namespace

int64_t SyntheticBatchSize(const TrainConfig& config, const OnnxModel& model, const ImportOptions& import) {
  int64_t batch = GlobalBatchSize(config, model);
  if (ChoosesBatch(config) || ExportedBatch(model) > 1) return batch;
  const double flops = StepFlops(model, import);
  while (batch > kTracedBatch && static_cast<double>(batch) * flops > kStepFlops) batch /= 2;
  return batch;
}

}  // namespace onnxtrain
