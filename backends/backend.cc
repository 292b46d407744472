#include "backends/backend.h"

#include "frontend/base/status.h"

namespace onnxtrain {

absl::Status CheckFits(const Backend& backend, size_t bytes, std::string_view what) {
  const size_t available = backend.FreeMemory();
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat(what, " need ", bytes >> 20, " MiB, but only ", available >> 20, " MiB of memory are free"));
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateChecked(Backend& backend, size_t bytes, std::string_view what) {
  RETURN_IF_ERROR(CheckFits(backend, bytes, what));
  return backend.Allocate(bytes);
}

}  // namespace onnxtrain
