// A libFuzzer program. The environment variable ONNXTRAIN_FUZZ_TARGET names the reader.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "tests/fuzz/targets.h"

namespace onnxtrain {
namespace {

const FuzzTarget& Target() {
  const char* name = std::getenv("ONNXTRAIN_FUZZ_TARGET");
  for (const FuzzTarget& target : FuzzTargets()) {
    if (name != nullptr && target.name == name) return target;
  }
  std::cerr << "ONNXTRAIN_FUZZ_TARGET names no target; there are:";
  for (const FuzzTarget& target : FuzzTargets()) std::cerr << " " << target.name;
  std::cerr << "\n";
  std::exit(1);
}

}  // namespace
}  // namespace onnxtrain

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const onnxtrain::FuzzTarget& target = onnxtrain::Target();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
