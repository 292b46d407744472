// Turns the bytes of a picture file into a sample: decode, crop, resize, turn, augment, lay out.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "frontend/data/image/augment.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/image.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Turns a picture in place, using the memory of `spare`.
void TurnImage(const Turn& turn, Image* image, Image* spare);

// Returns the turn that applies `first`, then the flips of `then`, which must not transpose.
Turn Compose(const Turn& first, const Turn& then);

// Returns the part of the stored width × height picture that becomes `upright` when the picture is turned.
Box StoredBox(const Turn& turn, int width, int height, const Box& upright);

enum class PictureKind : uint8_t {
  kColors,  // [channels, height, width] or [height, width, channels]
  kMask     // [height, width]: palette indices or grey values as classes, never interpolated
};

// Returns width and height of the sample of an upright picture that keeps its size or its aspect ratio.
std::pair<int, int> SampleSize(int width, int height, const PictureSizes& sizes);

// Returns the part of an upright width × height picture that fills a sample without augmentation.
Box FitBox(int width, int height, const ImageOptions& options);

// A decoded whole picture, from which samples are cut in several passes.
struct DecodedPicture {
  PictureInfo info;
  Image image;  // pixels with the channels of samples
};

// Holds decoders and buffers. Not thread-safe: ForThisThread() returns one per thread.
class PicturePipeline {
 public:
  static PicturePipeline& ForThisThread();

  // Writes the sample to `out`: options.sample(), or height × width bytes for masks; fails if a picture that keeps its
  // size does not fill `out`. Augmentation is a function of (pass, sample), so pictures and masks of a sample are cut
  // and turned alike.
  absl::Status Run(ByteSpan file, const ImageOptions& options, PictureKind kind, const ReadPass& pass, int64_t sample,
                   std::span<std::byte> out);
  // Splits Run into two steps, Decode and the rest; the pixels are equal unless options.decode_scaling is set.
  absl::Status Decode(ByteSpan file, const ImageOptions& options, PictureKind kind, DecodedPicture* decoded);
  absl::Status Run(const DecodedPicture& decoded, const ImageOptions& options, PictureKind kind, const ReadPass& pass,
                   int64_t sample, std::span<std::byte> out);

 private:
  struct Plan;
  static Plan MakePlan(const PictureInfo& info, const ImageOptions& options, const ReadPass& pass,
                       Augmenter* augmenter);
  absl::Status Decode(const DecodeRequest& request, const ImageOptions& options, Image* image);
  absl::Status Finish(const Image& decoded, const PictureInfo& info, const Plan& plan, const ImageOptions& options,
                      bool mask, Augmenter* augmenter, std::span<std::byte> out);

  PictureDecoder decoder_;
  Resampler resampler_;
  Image decoded_, image_, spare_;
};

}  // namespace onnxtrain
