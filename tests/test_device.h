// The device of tests that run on every backend: ONNXTRAIN_TEST_DEVICE (cuda:0) for torch, the CPU otherwise.
#pragma once

#include <cstdlib>
#include <string_view>

#include "backends/backend.h"

namespace onnxtrain {

inline BackendOptions TestOptions(std::string_view backend, int threads = 0) {
  const char* device = std::getenv("ONNXTRAIN_TEST_DEVICE");
  if (backend != "torch" || device == nullptr) return {.threads = threads};
  return {.device = device, .threads = threads};
}

}  // namespace onnxtrain
