#include "frontend/ops/import/window_axes.h"

#include <algorithm>

namespace onnxtrain {
namespace {

int64_t Product(const Shape& shape, size_t begin, size_t end) {
  return NumElements(
      Shape(shape.begin() + static_cast<std::ptrdiff_t>(begin), shape.begin() + static_cast<std::ptrdiff_t>(end)));
}

bool IsSingle(const Windows& w, size_t i) {
  return w.kernel[i] == 1 && w.strides[i] == 1 && w.pads[i] == 0 && w.pads[i + w.axes()] == 0;
}

// The axes whose windows have several elements; the last one, if there are none.
std::vector<size_t> WindowedAxes(const Windows& w) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < w.axes(); ++i) {
    if (!IsSingle(w, i)) axes.push_back(i);
  }
  if (axes.empty()) axes.push_back(w.axes() - 1);
  return axes;
}

Windows Select(const Windows& w, const std::vector<size_t>& axes) {
  Windows selected;
  for (const size_t i : axes) {
    selected.kernel.push_back(w.kernel[i]);
    selected.strides.push_back(w.strides[i]);
    selected.dilations.push_back(w.dilations[i]);
    selected.pads.push_back(w.pads[i]);
  }
  for (const size_t i : axes) selected.pads.push_back(w.pads[i + w.axes()]);
  return selected;
}

}  // namespace

Val WindowAxes::Restore(Val y) const {
  if (!y || !folded()) return y;
  const size_t windows = w.axes(), first = joined.size() - windows;
  Shape shape = joined;
  shape[channel] = y.dim(1) / Product(joined, channel + 1, first);
  for (size_t i = 0; i < windows; ++i) shape[first + i] = y.dim(static_cast<int>(i) + 2);
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  return Transpose(Reshape(y, std::move(shape)), std::move(back));
}

absl::StatusOr<WindowAxes> FoldWindowAxes(Val x, Windows w, bool channels_alone) {
  WindowAxes result{x, std::move(w), {}, {}};
  if (result.w.axes() <= kMaxSpatialAxes) return result;
  const std::vector<size_t> windowed = WindowedAxes(result.w);
  if (windowed.size() > kMaxSpatialAxes) return Unsupported(StrCat("windows over ", windowed.size(), " spatial axes"));
  std::vector<int64_t> samples = {0}, channels = {1}, spatial;
  for (size_t i = 0; i < result.w.axes(); ++i) {
    const bool single = std::ranges::find(windowed, i) == windowed.end();
    auto& axes = !single ? spatial : channels_alone && i > windowed[0] ? channels : samples;
    axes.push_back(static_cast<int64_t>(i) + 2);
  }
  result.channel = static_cast<int>(samples.size());
  for (const auto& axes : {samples, channels, spatial}) {
    result.order.insert(result.order.end(), axes.begin(), axes.end());
  }
  for (const int64_t axis : result.order) result.joined.push_back(x.dim(static_cast<int>(axis)));
  const size_t split = samples.size(), first = split + channels.size();
  Shape shape = {Product(result.joined, 0, split), Product(result.joined, split, first)};
  shape.insert(shape.end(), result.joined.begin() + static_cast<std::ptrdiff_t>(first), result.joined.end());
  result.x = Reshape(Transpose(x, result.order), std::move(shape));
  result.w = Select(result.w, windowed);
  return result;
}

Val FoldKernel(Val weights, const WindowAxes& axes) {
  if (!axes.folded()) return weights;
  Shape shape = {weights.dim(0), weights.dim(1)};
  shape.insert(shape.end(), axes.w.kernel.begin(), axes.w.kernel.end());
  return Reshape(weights, std::move(shape));
}

}  // namespace onnxtrain
