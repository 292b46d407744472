// The folders that tests read and run from. They are compiled into one small source, so that the objects of all tests
// are the same in every clone, and a compiler cache serves them.
#pragma once

#include <string>
#include <string_view>

namespace onnxtrain {

// Returns the root of the sources, or the path of `name` in it: "tests/models".
std::string RepoPath(std::string_view name = {});

// Returns the build folder, or the path of `name` in it: "bin/onnxtrain".
std::string BinaryPath(std::string_view name = {});

}  // namespace onnxtrain
