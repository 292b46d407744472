// Settings of libtorch that a backend makes for the process.
#include <gtest/gtest.h>

#include <ATen/Context.h>

#include "backends/backend.h"

extern "C" onnxtrain::Backend* onnxtrain_create_backend(const onnxtrain::BackendOptions& options, absl::Status* status);

namespace onnxtrain {
namespace {

// libtorch's own default rounds the factors of convolutions.
TEST(Settings, Tf32OnlyOnRequest) {
  for (bool tf32 : {true, false}) {
    absl::Status status;
    const std::unique_ptr<Backend> backend(onnxtrain_create_backend({.device = "cpu", .tf32 = tf32}, &status));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), tf32);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), tf32);
  }
}

}  // namespace
}  // namespace onnxtrain
