#include "frontend/data/image/turn.h"

#include <cstring>
#include <utility>

namespace onnxtrain {

void TurnImage(const Turn& turn, Image* image, Image* spare) {
  if (!turn.mirror && !turn.flip && !turn.transpose) return;
  const int w = image->width, h = image->height, channels = image->channels;
  spare->Reset(turn.transpose ? h : w, turn.transpose ? w : h, channels);
  // Strides over the source while the result is written in order.
  const auto step = static_cast<std::ptrdiff_t>(channels), line = static_cast<std::ptrdiff_t>(image->stride());
  const std::ptrdiff_t along = turn.mirror ? -step : step, down = turn.flip ? -line : line;
  const uint8_t* start = image->row(turn.flip ? h - 1 : 0) + (turn.mirror ? (w - 1) * step : 0);
  const std::ptrdiff_t inner = turn.transpose ? down : along, outer = turn.transpose ? along : down;
  for (int y = 0; y < spare->height; ++y) {
    const uint8_t* from = start + y * outer;
    uint8_t* to = spare->row(y);
    for (int x = 0; x < spare->width; ++x, from += inner, to += channels) std::memcpy(to, from, channels);
  }
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
