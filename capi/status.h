// Statuses of the C interface, and the guard that turns whatever a function ends with into one.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "capi/onnxtrain.h"

namespace onnxtrain::capi {

// Null for OK.
OnnxtrainStatus* MakeStatus(const absl::Status& status) noexcept;
// Becomes ONNXTRAIN_CALLBACK.
absl::Status CallbackFailed(const char* callback, int result);
// Returned where there is no memory for a status.
OnnxtrainStatus* OutOfMemory() noexcept;

// Calls f(), which returns an absl::Status, and returns its status, or that of the exception it throws.
template <typename F>
OnnxtrainStatus* Guard(F&& f) noexcept {
  try {
    return MakeStatus(f());
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& e) {
    return MakeStatus(absl::InternalError(e.what()));
  } catch (...) {
    return MakeStatus(absl::InternalError("an exception of unknown type"));
  }
}

OnnxtrainCode GetCode(const OnnxtrainStatus* status) noexcept;
const char* GetMessage(const OnnxtrainStatus* status) noexcept;
void Release(OnnxtrainStatus* status) noexcept;

}  // namespace onnxtrain::capi
