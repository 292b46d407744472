// Guards for calls of libtorch: exceptions become Status, and a scope sets inference mode, device and stream.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
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

// Returns the stream that orders all work on a device: runs, copies and allocations. It is not the default stream,
// whose work cannot be recorded (replay.h). Not for the CPU.
c10::Stream DeviceStream(c10::Device device);

// Sets inference mode (no autograd), the current device and its stream for the life of the object. Every use of ATen
// needs such a scope.
class DeviceScope {
 public:
  explicit DeviceScope(c10::Device device);

 private:
  c10::InferenceMode inference_;
  c10::OptionalDeviceGuard device_;
  c10::OptionalStreamGuard stream_;
};

// Waits until all work on DeviceStream(device) has finished; returns at once for the CPU.
void SynchronizeDevice(c10::Device device);

}  // namespace onnxtrain::aten
