#include "frontend/data/image/float_warp.h"

#include <algorithm>
#include <cmath>

namespace onnxtrain {
namespace {

// Where each pixel of a sample comes from.
struct Geometry {
  Box box;
  Turn turn;
  Affine rotation;
};

// Along one axis: the pixels `low` and `low` + 1 (or `low` again at the end), and the share of the second one.
struct Between {
  int low = 0, high = 0;
  float share = 0;
};

// `at`: within the sample of `extent` pixels, which shows `part` pixels from `begin` on, clamped to them.
Between FindPixels(double at, int extent, bool reversed, int begin, int part) {
  if (reversed) at = extent - 1 - at;
  const double source = std::clamp((at + 0.5) * part / extent - 0.5, 0.0, part - 1.0);
  const int low = static_cast<int>(source);
  return {begin + low, begin + std::min(low + 1, part - 1), static_cast<float>(source - low)};
}

bool IsInside(double at, int extent) { return at > -0.5 && at < extent - 0.5; }

class PixelReader {
 public:
  PixelReader(const PixelLayout& layout, std::span<const float> values)
      : values_(values),
        across_(layout.channels_last ? layout.channels : 1),
        down_(across_ * layout.width),
        between_channels_(layout.channels_last ? 1 : layout.height * layout.width) {}

  int64_t Place(int y, int x, int channel) const { return y * down_ + x * across_ + channel * between_channels_; }
  float Mix(const Between& y, const Between& x, int channel) const {
    const auto row = [&](int r) {
      const float low = values_[Place(r, x.low, channel)], high = values_[Place(r, x.high, channel)];
      return x.share == 0 ? low : low + x.share * (high - low);
    };
    return y.share == 0 ? row(y.low) : row(y.low) + y.share * (row(y.high) - row(y.low));
  }

 private:
  std::span<const float> values_;
  int64_t across_, down_, between_channels_;
};

void WarpPixels(const PixelLayout& o, const Geometry& g, std::span<const float> from, std::span<float> to) {
  const PixelReader reader(o, from);
  const double cx = (o.width - 1) / 2.0, cy = (o.height - 1) / 2.0;
  const Affine& m = g.rotation;
  for (int y = 0; y < o.height; ++y) {
    for (int x = 0; x < o.width; ++x) {
      const double at_x = m[0] * (x - cx) + m[1] * (y - cy) + cx, at_y = m[3] * (x - cx) + m[4] * (y - cy) + cy;
      const bool inside = IsInside(at_x, o.width) && IsInside(at_y, o.height);
      const Between down = FindPixels(at_y, o.height, g.turn.flip, g.box.y, g.box.height);
      const Between across = FindPixels(at_x, o.width, g.turn.mirror, g.box.x, g.box.width);
      for (int c = 0; c < o.channels; ++c) to[reader.Place(y, x, c)] = inside ? reader.Mix(down, across, c) : 0;
    }
  }
}

void EraseFloats(const PixelLayout& o, const Box& box, std::span<float> to) {
  const PixelReader reader(o, to);
  for (int y = box.y; y < box.y + box.height; ++y) {
    for (int x = box.x; x < box.x + box.width; ++x) {
      for (int c = 0; c < o.channels; ++c) to[reader.Place(y, x, c)] = 0;
    }
  }
}

}  // namespace

void AugmentFloats(const Augmentation& augmentation, const PixelLayout& o, Augmenter* augmenter,
                   std::span<const float> from, std::span<float> to) {
  Geometry geometry{.rotation = {1, 0, 0, 0, 1, 0}};
  geometry.box = augmenter->DrawBox(o.width, o.height, {0, 0, o.width, o.height});
  geometry.turn = augmenter->DrawTurn();
  if (augmentation.rotate > 0) geometry.rotation = augmenter->DrawRotation();
  WarpPixels(o, geometry, from, to);
  if (const auto erased = augmenter->DrawErased(o.width, o.height)) EraseFloats(o, *erased, to);
}

}  // namespace onnxtrain
