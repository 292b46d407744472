// The fuzzing targets that need frontend/data alone.
#pragma once

#include "tests/fuzz/targets.h"

namespace onnxtrain {

std::span<const FuzzTarget> DataFuzzTargets();

}  // namespace onnxtrain
