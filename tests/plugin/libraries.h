// Paths of the libraries that these tests build.
#pragma once

#include <string>
#include <string_view>

#include "tests/paths.h"

namespace onnxtrain {

inline std::string TestLibrary(std::string_view name) { return BinaryPath("lib/lib" + std::string(name) + ".so"); }

}  // namespace onnxtrain
