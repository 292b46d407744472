// Recognizes constant tables that exporters write as if they were weights.
#pragma once

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Is it a sinusoidal position table (Vaswani et al., 2017)? Tests the rows: the first is zeros and ones, and each has
// squared norm width/2.
bool IsSinusoidTable(const HostTensor& tensor);

// Is it an additive attention mask: zeros and one large negative number, of rank ≥ 2?
bool IsAttentionMask(const HostTensor& tensor);

}  // namespace onnxtrain
