// Decodes the files of pictures: JPEG, PNG, WebP, GIF and TIFF (the first picture) and BMP, told apart by their
// content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/data/image/image.h"

namespace onnxtrain {

// The orientation of a photograph from its EXIF data (CIPA DC-008, section 4.6.4).

// Returns the orientation tag (1 to 8) of the first directory of a TIFF structure, which may follow "Exif\0\0". 1 where
// there is none or the structure is broken.
int ExifOrientation(std::span<const uint8_t> exif);

using ByteSpan = std::span<const uint8_t>;

// Pictures that declare more pixels are refused before memory is allocated for them.
inline constexpr int64_t kMaxPixels = int64_t{1} << 26;

struct DecodeRequest {
  // The part that is needed, in stored pixels; nullopt: all. A decoder may return more of the picture.
  std::optional<Box> part = {};
  // Not 0: a decoder may return the picture at a half, a quarter or an eighth, as long as the part stays at least this
  // large.
  int min_width = 0, min_height = 0;
  // Returns the indices of a palette instead of its colors, and other pixels as grey values.
  bool indices = false;
};

// Reads pictures of one format. Keeps its buffers from one picture to the next. One thread at a time.
class PictureReader {
 public:
  virtual ~PictureReader() = default;
  // Reads the header. `bytes` must stay until Decode has returned.
  virtual absl::StatusOr<PictureInfo> Open(ByteSpan bytes) = 0;
  // Decodes the picture that was opened last, once. Pixels are RGB, or grey where the file has no colors; alpha is
  // dropped; 16 bits become the upper 8. Data that ends early is an error.
  virtual absl::Status Decode(const DecodeRequest& request, Image* image) = 0;
};

// Is it a picture, as far as its first bytes tell? 16 of them are enough.
bool IsPicture(ByteSpan bytes);

// Reads pictures of all formats. One thread at a time.
class PictureDecoder {
 public:
  PictureDecoder();
  ~PictureDecoder();
  // As PictureReader. Also fails on content of no known format and on more pixels than kMaxPixels.
  absl::StatusOr<PictureInfo> Open(ByteSpan bytes);
  absl::Status Decode(const DecodeRequest& request, Image* image);

 private:
  std::vector<std::unique_ptr<PictureReader>> readers_;  // by format, created with the first picture
  PictureReader* current_ = nullptr;
};

// The formats of pictures: each file NAME.cc has one.

std::unique_ptr<PictureReader> MakeJpegReader();
std::unique_ptr<PictureReader> MakePngReader();
std::unique_ptr<PictureReader> MakeWebpReader();
std::unique_ptr<PictureReader> MakeGifReader();
std::unique_ptr<PictureReader> MakeBmpReader();
std::unique_ptr<PictureReader> MakeTiffReader();

// Fails where a header declares no pixels or too many.
absl::Status CheckPixels(int64_t width, int64_t height);

}  // namespace onnxtrain
