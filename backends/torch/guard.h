// The one place where libtorch's exceptions become Status.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include <c10/util/Exception.h>

#include "absl/status/status.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {

// Runs `f`; what it throws becomes an error prefixed with `where`, the tag of a node. Running out of memory is
// ResourceExhausted, told by the exception's type where libtorch has one for it.
template <typename F>
absl::Status Guarded(std::string_view where, F&& f) {
  try {
    f();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(StrCat(where, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(StrCat(where, error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(StrCat(where, "out of memory"));
  } catch (const std::exception& error) {
    return absl::InternalError(StrCat(where, error.what()));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain::aten
