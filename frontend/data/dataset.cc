#include "frontend/data/dataset.h"

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::string> Dataset::ReadText(int64_t i, int c) const {
  return Invalid(Describe(i), ", column '", columns()[c].name, "': no text");
}

absl::Status Dataset::ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const {
  const size_t width = columns()[c].sample.bytes();
  for (int64_t i = 0; i < count; ++i) RETURN_IF_ERROR(Read(first + i, c, out.subspan(i * width, width)));
  return absl::OkStatus();
}

}  // namespace onnxtrain
