// Reads WebP with libwebp.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>
#include <optional>

#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"

namespace onnxtrain {
namespace {

using Demuxer = std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)>;
using Animation = std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)>;

// Returns nullopt if the bytes end before the EXIF data.
std::optional<int> Orientation(const WebPData& data) {
  const Demuxer demuxer(WebPDemux(&data), WebPDemuxDelete);
  if (demuxer == nullptr) return std::nullopt;
  WebPChunkIterator chunk = {};
  if (WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk) == 0) return 1;
  const int orientation = ExifOrientation({chunk.chunk.bytes, chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

// Returns true if an extended file (VP8X) has EXIF metadata, which follow the pixels.
bool HasExif(ByteSpan bytes) {
  constexpr size_t kFlags = 20;
  constexpr uint8_t kExif = 8;
  return bytes.size() > kFlags && std::memcmp(&bytes[12], "VP8X", 4) == 0 && (bytes[kFlags] & kExif) != 0;
}

class WebpReader : public PictureReader {
 public:
  absl::StatusOr<PictureInfo> Open(ByteSpan bytes) override {
    data_ = {bytes.data(), bytes.size()};
    if (WebPGetFeatures(data_.bytes, data_.size, &features_) != VP8_STATUS_OK) return Broken();
    if (!HasExif(bytes)) return PictureInfo{features_.width, features_.height};
    const auto orientation = Orientation(data_);
    return PictureInfo{features_.width, features_.height, orientation.value_or(1), orientation.has_value()};
  }

  absl::Status Decode(const DecodeRequest&, Image* image) override {
    image->Reset(features_.width, features_.height, 3);
    if (features_.has_animation != 0) return DecodeFirstFrame(image);
    const bool done = WebPDecodeRGBInto(data_.bytes, data_.size, image->pixels.data(), image->pixels.size(),
                                        static_cast<int>(image->stride())) != nullptr;
    return done ? absl::OkStatus() : Broken();
  }

 private:
  static absl::Status Broken() { return Invalid("broken or truncated WebP"); }

  absl::Status DecodeFirstFrame(Image* image) const {
    WebPAnimDecoderOptions options;
    WebPAnimDecoderOptionsInit(&options);
    const Animation animation(WebPAnimDecoderNew(&data_, &options), WebPAnimDecoderDelete);
    uint8_t* canvas = nullptr;
    int timestamp = 0;
    if (animation == nullptr || WebPAnimDecoderGetNext(animation.get(), &canvas, &timestamp) == 0) return Broken();
    for (size_t i = 0; i < image->pixels.size() / 3; ++i) std::memcpy(&image->pixels[3 * i], canvas + 4 * i, 3);
    return absl::OkStatus();
  }

  WebPData data_ = {};
  WebPBitstreamFeatures features_ = {};
};

}  // namespace

std::unique_ptr<PictureReader> MakeWebpReader() { return std::make_unique<WebpReader>(); }

}  // namespace onnxtrain
