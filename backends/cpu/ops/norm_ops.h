// Layer normalization fused with its neighbors in a transformer: cpu.LayerNorm and cpu.LayerNormGrad. RMSNorm is the
// same without a mean and a bias: cpu.RmsNorm and cpu.RmsNormGrad.
//
// cpu.LayerNorm: scale, bias?, key?, terms… → `results`
//   h = Σ terms, y = LayerNorm(h). Term `dropped` (−1: none) goes through Dropout(key) {ratio, stream} first.
// cpu.LayerNormGrad: scale, rstd, mean, key?, h, terms…, more… → `results`
//   dh = LayerNormGrad(Σ terms, h, …) + Σ more (`more` of them); d = Dropout(dh, key) {ratio, stream}.
// Terms are f32 or bf16 and are added in order. Computes in float32 and rounds once.
#pragma once

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// The results of cpu.LayerNorm. The attribute `results` lists those of a node, in this order.
enum class NormResult : int64_t { kSum, kF32, kBf16, kMean, kRstd };  // h; y in f32, in bf16; [rows…,1] each
// The results of cpu.LayerNormGrad. Columns: the f32 sum over all rows.
enum class NormGradResult : int64_t { kSum, kBf16, kColumns, kDropped, kDroppedBf16, kDroppedColumns, kScale, kBias };
inline constexpr size_t kNormResults = 5, kNormGradResults = 8;

// Indices of the inputs.
inline constexpr size_t kNormScale = 0, kNormBias = 1, kNormKey = 2, kNormTerms = 3;
inline constexpr size_t kNormGradScale = 0, kNormGradRstd = 1, kNormGradMean = 2, kNormGradKey = 3, kNormGradSum = 4,
                        kNormGradTerms = 5;

// Largest row that fits the stack of a kernel.
inline constexpr int64_t kMaxNormRow = 4096;

}  // namespace onnxtrain::cpu
