#include "frontend/ops/windows.h"

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;

absl::Status CheckRange(const Shape& values, size_t count, int64_t least, std::string_view what) {
  if (values.size() != count) return Invalid(what, " ", ToString(values), " should have ", count, " entries");
  for (int64_t v : values) {
    if (v < least || v >= kLimit)
      return Invalid(what, " ", ToString(values), " should be between ", least, " and 2^31");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Windows> ReadWindows(const Attrs& attrs, Shape kernel) {
  const size_t n = kernel.size();
  if (n < 1 || n > kMaxSpatialAxes)
    return Invalid("has ", n, " spatial axes; 1 to ", kMaxSpatialAxes, " are supported");
  Windows w{std::move(kernel), attrs.Ints("strides"), attrs.Ints("pads"), attrs.Ints("dilations")};
  RETURN_IF_ERROR(CheckRange(w.kernel, n, 1, "kernel shape"));
  RETURN_IF_ERROR(CheckRange(w.strides, n, 1, "strides"));
  RETURN_IF_ERROR(CheckRange(w.pads, 2 * n, 0, "pads"));
  RETURN_IF_ERROR(CheckRange(w.dilations, n, 1, "dilations"));
  return w;
}

Attrs WindowAttrs(const Windows& w) { return {{"strides", w.strides}, {"pads", w.pads}, {"dilations", w.dilations}}; }

Attrs PoolAttrs(const Windows& w) {
  Attrs attrs = WindowAttrs(w);
  attrs.Set("kernel_shape", w.kernel);
  return attrs;
}

absl::StatusOr<Shape> WindowCounts(const Windows& w, std::span<const int64_t> extents) {
  if (extents.size() != w.axes()) return Invalid("has ", extents.size(), " spatial axes, its windows have ", w.axes());
  Shape counts;
  for (size_t i = 0; i < w.axes(); ++i) {
    const int64_t room = extents[i] + w.pads[i] + w.pads[i + w.axes()] - w.Reach(i);
    if (room < 0) {
      return Invalid("a window of ", w.Reach(i), " does not fit into spatial axis ", i, " of extent ", extents[i],
                     " with padding ", w.pads[i], " and ", w.pads[i + w.axes()]);
    }
    counts.push_back(room / w.strides[i] + 1);
  }
  return counts;
}

absl::Status CheckWindowsOverlapInput(const Windows& w, std::span<const int64_t> extents) {
  ASSIGN_OR_RETURN(const Shape counts, WindowCounts(w, extents));
  for (size_t i = 0; i < w.axes(); ++i) {
    const int64_t last = (counts[i] - 1) * w.strides[i] - w.pads[i];
    // Only a dilation above the extent lets a window step over all elements.
    const bool steps_over = w.kernel[i] > 1 && w.dilations[i] > extents[i];
    if (w.pads[i] >= w.Reach(i) || last >= extents[i] || steps_over) {
      return Invalid("a window along spatial axis ", i, " of extent ", extents[i], " would hold nothing but padding ",
                     ToString(w.pads));
    }
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
