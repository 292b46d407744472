// Pictures in memory: 8-bit pixels, rectangles, orientations, color conversion and resizing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Compiles a function for AVX2 as well, without fused multiply-add, so that results are equal on all processors.
#if defined(__x86_64__) && !defined(__clang__) && !defined(ONNXTRAIN_SANITIZER)
#define ONNXTRAIN_FOR_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define ONNXTRAIN_FOR_AVX2
#endif

namespace onnxtrain {

// A rectangle in pixels: [x, x + width) × [y, y + height).
struct Box {
  int x = 0, y = 0, width = 0, height = 0;
  bool operator==(const Box&) const = default;
};

// The contents of a file's header.
struct PictureInfo {
  int width = 0, height = 0;  // stored size, at least 1
  int orientation = 1;        // EXIF orientation, 1 to 8
  bool complete = true;       // false: the orientation is in bytes that were not passed
};

// Rows of interleaved 8-bit channels: 1 grey, 3 RGB. Holds a whole picture, a part of it, or a scaled-down copy.
struct Image {
  int width = 0, height = 0, channels = 0;  // extents of `pixels`
  int x = 0, y = 0;                         // position of the first pixel in the whole picture
  int whole_width = 0, whole_height = 0;    // size of the whole picture at the scale of `pixels`
  std::vector<uint8_t> pixels;

  // Makes this a whole picture with undefined pixels. Reuses memory that is large enough.
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

// One of eight orientations: first mirrors left to right, flips top to bottom, then transposes.
struct Turn {
  bool mirror = false, flip = false, transpose = false;
};
// Returns the turn that makes a picture of that EXIF orientation upright.
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

// Returns ITU-R 601-2 luma in 16-bit fixed point, rounded as in Pillow's Image.convert.
constexpr uint8_t Luma(int r, int g, int b) {
  return static_cast<uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

// Returns a·b / 255, rounded to nearest.
constexpr int MulDiv255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

// Converts a CMYK channel to the RGB channel, 255 being full ink and full light.
constexpr uint8_t FromInk(int ink, int black) {
  const int left = 255 - black - MulDiv255(ink, 255 - black);
  return static_cast<uint8_t>(left < 0 ? 0 : left);
}

// Returns true if the three channels of every pixel are equal, or there is one channel.
bool IsGrey(const Image& image);

// Converts a picture to 1 or 3 channels.
void SetChannels(int channels, Image* image);

// Filters for resizing, numbered and weighted as in Pillow, whose pixels differ by at most one level. All but kNearest
// are antialiased: they widen when a picture shrinks.
enum class Filter : uint8_t { kNearest, kLanczos, kBilinear, kBicubic, kBox, kHamming };

// Return the name, "bicubic", and the filter with a name or with Pillow's number; nullopt if there is none.
const char* FilterName(Filter filter);
std::optional<Filter> FindFilter(std::string_view name);
std::optional<Filter> FindFilter(int64_t number);

// Resizes parts of pictures. Reuses its buffers. Not thread-safe.
class Resampler {
 public:
  // Resizes `part` of a picture to `out` with width × height pixels and the channels of `in`. `part` is in pixels of
  // the picture with header `info`; `in` holds at least that part, possibly of a scaled-down copy. Pixels outside of
  // the part have no influence.
  void Resize(const Image& in, const PictureInfo& info, const Box& part, Filter filter, int width, int height,
              Image* out);

 private:
  // Output pixel i is Σ_k weights[i·taps + k] · in[first[i] + k] for k < taps. All pixels have the same number of taps,
  // so that loops have no branches.
  struct Axis {
    int taps = 0;
    std::vector<int> first;
    std::vector<float> weights;
  };
  // The part [begin, begin + extent) of `in` pixels, which becomes `out` pixels.
  struct Range {
    double begin, extent;
    int in, out;
  };
  static void SetWeights(const Range& range, Filter filter, Axis* axis);
  static void SetNearest(const Range& range, Axis* axis);
  static void SetIdentity(int first, int count, Axis* axis);
  void Mix(const Image& in, const Axis& x, const Axis& y, bool clips, Image* out);

  Axis x_, y_, identity_;
  Image between_;             // resized in one direction
  std::vector<float> row_;    // one row, resized vertically
  std::vector<float> mixed_;  // one row of the output before rounding
};

// Encodes [height, width, channels] bytes of one channel (grey) or three (RGB) as PNG. Returns "" if libpng fails.
std::string EncodePng(std::string_view pixels, int64_t height, int64_t width, int64_t channels);

}  // namespace onnxtrain
