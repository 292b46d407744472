// Gains of Kaiming initialization, for rows of activations.
#pragma once

#include <numbers>

#include "frontend/graph/attrs.h"

namespace onnxtrain {

inline double ReluGain(const Attrs&) { return std::numbers::sqrt2; }  // He et al., 2015
inline double XavierGain(const Attrs&) { return 0; }                  // saturates: Glorot and Bengio, 2010

}  // namespace onnxtrain
