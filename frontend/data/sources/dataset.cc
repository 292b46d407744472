#include "frontend/data/sources/dataset.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::string> Dataset::ReadText(int64_t i, int c) const {
  return Invalid(Describe(i), ", column '", columns()[c].name, "': no text");
}

Type SampleType(const Dataset& data, int64_t i, int c) {
  const Column& column = data.columns()[c];
  Type type = column.sample;
  if (column.height_axis < 0) return type;
  const PictureExtents extents = data.Extents(i);
  type.shape[column.height_axis] = extents.height;
  type.shape[column.height_axis + 1] = extents.width;
  return type;
}

int FindHeightAxis(const Column& column, const Shape& sample) {
  if (column.height_axis < 0) return -1;
  if (sample == column.sample.shape) return column.height_axis;
  const auto extents = column.sample.shape.begin() + column.height_axis;
  const auto found = std::search(sample.begin(), sample.end(), extents, extents + 2);
  return found == sample.end() ? -1 : static_cast<int>(found - sample.begin());
}

absl::Status Dataset::ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const {
  for (int64_t i = 0; i < count; ++i) {
    const size_t bytes = SampleType(*this, first + i, c).bytes();
    RETURN_IF_ERROR(Read(first + i, c, out.first(bytes)));
    out = out.subspan(bytes);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
