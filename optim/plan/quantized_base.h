// Quantizes the frozen products of a model in memory, for adapters (QLoRA, Dettmers et al., arXiv:2305.14314).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/quantize_blocks.h"
#include "optim/config/config.h"
#include "optim/plan/adapters.h"

namespace onnxtrain {

using BaseBlocks = std::map<std::string, std::shared_ptr<const StoredBlocks>>;

inline bool QuantizesBase(const TrainConfig& config) { return config.quantize_base != "none"; }

// Returns the blocks that quantize_base asks for, by weight: of all matrices that MatMul and Gemm multiply by and that
// adapters may be trained beside, except the output layer and weights that train whole. The result depends only on the
// file and the format. Fails if a weight is quantized in the file, and on updates that need float weights (PiSSA).
absl::StatusOr<BaseBlocks> QuantizeBase(const TrainConfig& config, const OnnxModel& model, const AdapterPlan& plan);

// Sets the initial magnitudes of updates (DoRA) to those of the blocks.
void StartFromBlocks(const BaseBlocks& blocks, AdapterPlan* plan);

// Sizes and errors of the blocks of a base.
struct BaseSummary {
  int64_t weights = 0, bytes = 0, file_bytes = 0;
  std::string worst;       // the weight with the largest error
  double worst_error = 0;  // ‖Ŵ − W‖ / ‖W‖
};
// Summarizes the blocks that replace weights of the model.
BaseSummary SummarizeBase(const BaseBlocks& blocks, const OnnxModel& model);

// "base: 84 weights as nf4: 41.2 MiB instead of 301.5 MiB; largest error 0.095, of …"
std::string DescribeBase(const TrainConfig& config, const BaseSummary& base);

}  // namespace onnxtrain
