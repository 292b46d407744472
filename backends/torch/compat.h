// Differences between libtorch 1.13.1 and 2.x.
#pragma once

#include <torch/version.h>

#include <cstddef>
#include <cstdint>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#define ONNXTRAIN_TORCH2 (TORCH_VERSION_MAJOR >= 2)

// True if at::mm can multiply half-precision matrices into a float32 result.
#define ONNXTRAIN_WIDE_PRODUCTS (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8))

#if ONNXTRAIN_TORCH2
#include <optional>
#else
#include <c10/util/Optional.h>
#endif

namespace onnxtrain::aten {

#if ONNXTRAIN_TORCH2
using WarningGuard = c10::WarningUtils::WarningHandlerGuard;
class SilentHandler : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};
template <typename T>
using Optional = std::optional<T>;
// Type of the sizes that the allocator reports.
using ReportedBytes = size_t;
#else
using WarningGuard = c10::Warning::WarningHandlerGuard;
class SilentHandler : public c10::WarningHandler {
  void process(const c10::SourceLocation&, const std::string&, const bool) override {}
};
template <typename T>
using Optional = c10::optional<T>;
using ReportedBytes = int64_t;
#endif

}  // namespace onnxtrain::aten
