// Where shared libraries of this project lie.
#pragma once

#include <filesystem>

namespace onnxtrain {

// The folder of the shared library, or of the program, that this function is linked into; "." where it is unknown.
std::filesystem::path LibraryFolder();

}  // namespace onnxtrain
