#include "frontend/data/image/turn.h"

#include <cstring>
#include <utility>

namespace onnxtrain {
namespace {

// Writes a row of `width` pixels that are `step` bytes apart.
template <int kChannels>
void CopyPixels(const uint8_t* from, std::ptrdiff_t step, int width, uint8_t* to) {
  for (int x = 0; x < width; ++x, from += step, to += kChannels) std::memcpy(to, from, kChannels);
}

}  // namespace

void TurnImage(const Turn& turn, Image* image, Image* spare) {
  if (!turn.mirror && !turn.flip && !turn.transpose) return;
  const int w = image->width, h = image->height, channels = image->channels;
  const auto copy = channels == 3 ? CopyPixels<3> : CopyPixels<1>;
  spare->Reset(turn.transpose ? h : w, turn.transpose ? w : h, channels);
  // Strides over the source while the result is written in order.
  const auto step = static_cast<std::ptrdiff_t>(channels), line = static_cast<std::ptrdiff_t>(image->stride());
  const std::ptrdiff_t along = turn.mirror ? -step : step, down = turn.flip ? -line : line;
  const uint8_t* start = image->row(turn.flip ? h - 1 : 0) + (turn.mirror ? (w - 1) * step : 0);
  const std::ptrdiff_t inner = turn.transpose ? down : along, outer = turn.transpose ? along : down;
  for (int y = 0; y < spare->height; ++y) copy(start + y * outer, inner, spare->width, spare->row(y));
  std::swap(*image, *spare);
}

Turn Compose(const Turn& first, const Turn& then) {
  const bool t = first.transpose;
  return {first.mirror != (t ? then.flip : then.mirror), first.flip != (t ? then.mirror : then.flip), t};
}

Box StoredBox(const Turn& turn, int width, int height, const Box& upright) {
  Box box = upright;
  if (turn.transpose) box = {upright.y, upright.x, upright.height, upright.width};
  if (turn.mirror) box.x = width - box.x - box.width;
  if (turn.flip) box.y = height - box.y - box.height;
  return box;
}

}  // namespace onnxtrain
