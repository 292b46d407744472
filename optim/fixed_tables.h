// Tables that an exporter writes into the file as if they were weights.
#pragma once

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Is it the table of Vaswani et al. (2017), sines and cosines of the position at geometric wavelengths, as an exporter writes
// it into the file? Told by its rows: the first is zeros and ones, every one has squared length width/2.
bool IsSinusoidTable(const HostTensor& tensor);

// Is it a mask to be added to attention scores: zeros and one large negative number, in a tensor of two axes or more?
bool IsAttentionMask(const HostTensor& tensor);

}  // namespace onnxtrain
