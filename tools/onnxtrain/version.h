#pragma once

namespace onnxtrain::cli {

inline constexpr char kVersion[] = ONNXTRAIN_VERSION;  // of the CMake project

}  // namespace onnxtrain::cli
