#pragma once

namespace onnxtrain {

extern const char kVersion[];  // of the CMake project
extern const char kCommit[];   // of the sources, abbreviated; "" if they were built outside of a repository

}  // namespace onnxtrain
