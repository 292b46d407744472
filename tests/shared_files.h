// Models and data that tests use where they are: ../shared beside the sources, or the folder that ONNXTRAIN_SHARED
// names.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/paths.h"

namespace onnxtrain {

inline std::string SharedPath(const std::string& name) {
  const char* folder = std::getenv("ONNXTRAIN_SHARED");
  return std::string(folder != nullptr ? folder : RepoPath("../shared")) + "/" + name;
}

}  // namespace onnxtrain

// Skips the test where the file or folder is missing. tools/test_summary.py counts these skips by the message.
#define SKIP_WITHOUT_SHARED(name)                                     \
  if (!std::filesystem::exists(::onnxtrain::SharedPath(name))) {      \
    GTEST_SKIP() << "NEEDS ../shared: " << (name) << " is not there"; \
  }
