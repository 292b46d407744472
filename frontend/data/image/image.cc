#include "frontend/data/image/image.h"

namespace onnxtrain {
namespace {

// In place, from the front: the result is shorter.
void ToGrey(Image* image) {
  uint8_t* p = image->pixels.data();
  const size_t n = image->pixels.size() / 3;
  for (size_t i = 0; i < n; ++i) p[i] = Luma(p[3 * i], p[3 * i + 1], p[3 * i + 2]);
  image->pixels.resize(n);
}

// In place, from the back: the result is longer.
void ToRgb(Image* image) {
  const size_t n = image->pixels.size();
  image->pixels.resize(3 * n);
  uint8_t* p = image->pixels.data();
  for (size_t i = n; i-- > 0;) p[3 * i] = p[3 * i + 1] = p[3 * i + 2] = p[i];
}

}  // namespace

bool IsGrey(const Image& image) {
  const std::vector<uint8_t>& p = image.pixels;
  size_t i = 0;
  while (image.channels == 3 && i < p.size() && p[i] == p[i + 1] && p[i] == p[i + 2]) i += 3;
  return image.channels == 1 || i == p.size();
}

void SetChannels(int channels, Image* image) {
  if (image->channels == channels) return;
  channels == 1 ? ToGrey(image) : ToRgb(image);
  image->channels = channels;
}

}  // namespace onnxtrain
