// NVIDIA's run-time compiler, loaded when it is first needed: neither a build nor a start needs CUDA.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain::aten {

// Compiles CUDA C++ for one architecture.
class SourceCompiler {
 public:
  virtual ~SourceCompiler() = default;
  // What the result depends on besides the source: "nvrtc 13.0 sm_90".
  virtual std::string version() const = 0;
  // Returns a module that the driver loads. The error has the compiler's messages. Thread-safe.
  virtual absl::StatusOr<std::string> Compile(const std::string& source) const = 0;
};

// `architecture`: the compute capability, 90 for 9.0. `folders`: where to look for the library besides the usual
// places. With `ptx`, the result is text that does not depend on the installed driver, else machine code.
absl::StatusOr<std::unique_ptr<SourceCompiler>> LoadNvrtc(int architecture, std::span<const std::string> folders,
                                                          bool ptx = false);

}  // namespace onnxtrain::aten
