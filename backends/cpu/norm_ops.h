// Layer and root mean square normalization with what stands around them in a transformer: cpu.LayerNorm and cpu.LayerNormGrad;
// cpu.RmsNorm and cpu.RmsNormGrad, the same without a bias and a mean.
//
// cpu.LayerNorm: scale, bias?, key?, terms… → `results`
//   h = Σ terms, y = LayerNorm(h). The term number `dropped` (−1: none) goes through Dropout(key) {ratio, stream} first.
// cpu.LayerNormGrad: scale, rstd, mean, key?, h, terms…, more… → `results`
//   dh = LayerNormGrad(Σ terms, h, …) + Σ more, of which there are `more`; d = Dropout(dh, key) {ratio, stream}.
// Terms are f32 or bf16, and added in order. All is computed in float32; what is rounded to bf16 is rounded once.
#pragma once

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

// The results of cpu.LayerNorm, those that the attribute lists in its order.
enum class NormResult : int64_t { kSum, kWide, kLow, kMean, kRstd };  // h; y in f32, in bf16; [rows…,1] each
// Those of cpu.LayerNormGrad. Columns: the sum over all rows, f32.
enum class NormGradResult : int64_t { kSum, kLow, kColumns, kDropped, kDroppedLow, kDroppedColumns, kScale, kBias };
inline constexpr size_t kNormResults = 5, kNormGradResults = 8;

// Where the inputs stand.
inline constexpr size_t kNormScale = 0, kNormBias = 1, kNormKey = 2, kNormTerms = 3;
inline constexpr size_t kNormGradScale = 0, kNormGradRstd = 1, kNormGradMean = 2, kNormGradKey = 3, kNormGradSum = 4, kNormGradTerms = 5;

// Rows that fit the stack of a kernel.
inline constexpr int64_t kLongestNormRow = 4096;

std::vector<OpRow> LayerNormRows();

}  // namespace onnxtrain::cpu
