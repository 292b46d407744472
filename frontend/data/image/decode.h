// Decodes picture files: JPEG, PNG, WebP, GIF and TIFF (first picture) and BMP, recognized by their content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/data/image/image.h"

namespace onnxtrain {

// Returns the EXIF orientation tag, 1 to 8 (CIPA DC-008, section 4.6.4), from the first directory of a TIFF structure,
// which may follow "Exif\0\0". Returns 1 if there is none or the structure is broken.
int ExifOrientation(std::span<const uint8_t> exif);

using ByteSpan = std::span<const uint8_t>;

// Limit on the declared pixels of a picture, checked before memory is allocated.
inline constexpr int64_t kMaxPixels = int64_t{1} << 26;

struct DecodeRequest {
  // The part that is needed, in stored pixels; nullopt: all. A decoder may return more.
  std::optional<Box> part = {};
  // Minimal size of the decoded part: if not 0, a decoder may scale the picture by 1/2, 1/4 or 1/8 down to it.
  int min_width = 0, min_height = 0;
  // Return palette indices instead of colors, and grey values of other pictures: for masks.
  bool indices = false;
};

// Reads pictures of one format. Reuses its buffers. Not thread-safe.
class PictureReader {
 public:
  virtual ~PictureReader() = default;
  // Reads the header. `bytes` must stay valid until Decode has returned.
  virtual absl::StatusOr<PictureInfo> Open(ByteSpan bytes) = 0;
  // Decodes the picture that was opened last; may be called once. Pixels are RGB, or grey if the file has no colors.
  // Drops alpha, reduces 16 bits to the upper 8. Fails on truncated data.
  virtual absl::Status Decode(const DecodeRequest& request, Image* image) = 0;
};

// Returns true if the first bytes (16 suffice) are those of a picture format.
bool IsPicture(ByteSpan bytes);

// Reads pictures of all formats. Not thread-safe.
class PictureDecoder {
 public:
  PictureDecoder();
  ~PictureDecoder();
  // Like PictureReader; also fails on unknown formats and on more than kMaxPixels.
  absl::StatusOr<PictureInfo> Open(ByteSpan bytes);
  absl::Status Decode(const DecodeRequest& request, Image* image);

 private:
  std::vector<std::unique_ptr<PictureReader>> readers_;  // one reader per format, created on first use
  PictureReader* current_ = nullptr;
};

// Create the readers of the formats, each defined in its NAME.cc.
std::unique_ptr<PictureReader> MakeJpegReader();
std::unique_ptr<PictureReader> MakePngReader();
std::unique_ptr<PictureReader> MakeWebpReader();
std::unique_ptr<PictureReader> MakeGifReader();
std::unique_ptr<PictureReader> MakeBmpReader();
std::unique_ptr<PictureReader> MakeTiffReader();

// Fails if a header declares no pixels or more than kMaxPixels.
absl::Status CheckPixels(int64_t width, int64_t height);

}  // namespace onnxtrain
