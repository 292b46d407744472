// Makes fixed attention masks constants, so that backends know at compile which keys they hide: a causal mask is then
// no operand at all for kernels that skip what it hides.
#pragma once

#include "absl/status/status.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Of the masks of Attention nodes that follow from frozen weights alone, embeds those that IsAttentionMask recognizes.
// Their weights stay inputs of the graph.
absl::Status EmbedFixedMasks(ImportedModel* model);

}  // namespace onnxtrain
