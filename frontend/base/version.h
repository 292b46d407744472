#pragma once

namespace onnxtrain {

extern const char kVersion[];  // of the CMake project

}  // namespace onnxtrain
