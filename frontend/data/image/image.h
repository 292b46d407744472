// Pictures in memory, and the two geometries that everything else is made of: rectangles and the eight ways to turn a
// picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onnxtrain {

// A part of a picture, in pixels: [x, x + width) × [y, y + height).
struct Box {
  int x = 0, y = 0, width = 0, height = 0;
  bool operator==(const Box&) const = default;
};

// What the header of a file says.
struct PictureInfo {
  int width = 0, height = 0;  // as stored, at least 1
  int orientation = 1;        // of EXIF, 1 to 8: how the stored rows must be turned to be looked at
  bool complete = true;       // false: the orientation is behind the end of the bytes
};

// Rows of interleaved 8-bit channels: 1 grey, 3 RGB. May hold only a part of a picture, or a smaller copy of it.
struct Image {
  int width = 0, height = 0, channels = 0;  // of `pixels`
  int x = 0, y = 0;                         // place of the first pixel within the whole
  int whole_width = 0, whole_height = 0;    // of the picture at the scale of `pixels`
  std::vector<uint8_t> pixels;

  // Makes a whole picture of undefined pixels. Keeps memory that is large enough.
  void Reset(int new_width, int new_height, int new_channels) {
    width = whole_width = new_width;
    height = whole_height = new_height;
    channels = new_channels;
    x = y = 0;
    pixels.resize(static_cast<std::size_t>(new_width) * new_height * new_channels);
  }
  std::size_t stride() const { return static_cast<std::size_t>(width) * channels; }  // bytes from row to row
  uint8_t* row(int r) { return pixels.data() + r * stride(); }
  const uint8_t* row(int r) const { return pixels.data() + r * stride(); }
};

// A way to turn a picture: first mirrors it left to right and top to bottom, then exchanges rows and columns.
struct Turn {
  bool mirror = false, flip = false, transpose = false;
};
// Returns the turn that shows a picture of that EXIF orientation upright.
constexpr Turn UprightTurn(int orientation) {
  constexpr Turn kTurns[] = {{},
                             {.mirror = true},
                             {.mirror = true, .flip = true},
                             {.flip = true},
                             {.transpose = true},
                             {.flip = true, .transpose = true},
                             {.mirror = true, .flip = true, .transpose = true},
                             {.mirror = true, .transpose = true}};
  return orientation >= 1 && orientation <= 8 ? kTurns[orientation - 1] : Turn{};
}

// Conversions between colors, rounded as Pillow's Image.convert does.

// ITU-R 601-2 luma in 16-bit fixed point.
constexpr uint8_t Luma(int r, int g, int b) {
  return static_cast<uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

// Rounds a·b / 255 to nearest.
constexpr int MulDiv255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

// Returns a channel of RGB from one of CMYK, both with 255 for full light and full ink.
constexpr uint8_t FromInk(int ink, int black) {
  const int left = 255 - black - MulDiv255(ink, 255 - black);
  return static_cast<uint8_t>(left < 0 ? 0 : left);
}

// Are the three channels of every pixel equal?
bool IsGrey(const Image& image);

// Converts a picture to 1 or 3 channels.
void SetChannels(int channels, Image* image);

}  // namespace onnxtrain
