// Paths of the libraries that these tests build.
#pragma once

#include <string>
#include <string_view>

namespace onnxtrain {

inline std::string TestLibrary(std::string_view name) {
  return std::string(ONNXTRAIN_BINARY_DIR) + "/lib/lib" + std::string(name) + ".so";
}

}  // namespace onnxtrain
