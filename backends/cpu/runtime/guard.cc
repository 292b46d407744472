#include "backends/cpu/runtime/guard.h"

#include <dnnl.hpp>
#include <new>

#include "frontend/base/address_space.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {

absl::Status CatchDnnlErrors(const std::function<void()>& f) {
  try {
    f();
    return absl::OkStatus();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) return absl::ResourceExhaustedError("oneDNN has run out of memory");
    return absl::InternalError(StrCat("oneDNN: ", e.message == nullptr ? "unknown error" : e.message, " (status ",
                                      static_cast<int>(e.status), ")"));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory left");
  }
}

absl::Status CheckJitMemory() {
  constexpr double kRoom = double{16 << 20};
  if (AvailableAddressSpace() >= kRoom) return absl::OkStatus();
  return absl::ResourceExhaustedError("no address space is left for the code of a primitive (ulimit -v)");
}

}  // namespace onnxtrain::cpu
