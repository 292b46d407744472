// Converts libtorch's exceptions to Status.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include <c10/util/Exception.h>

#include "absl/status/status.h"
#include "backends/kernel_table.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {

// Runs `f` and returns its exceptions as errors prefixed with `where`, the tag of a node. Out of memory is
// ResourceExhausted, by the exception's type if libtorch has one.
template <typename F>
absl::Status CatchTorchErrors(std::string_view where, F&& f) {
  try {
    f();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(StrCat(where, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(StrCat(where, error.what_without_backtrace()));
  } catch (const KernelFailure& failure) {
    return Annotate(failure.status(), where);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(StrCat(where, "out of memory"));
  } catch (const std::exception& error) {
    return absl::InternalError(StrCat(where, error.what()));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain::aten
