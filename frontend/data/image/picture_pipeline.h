// From the bytes of a file to a sample: decode, cut, resize, turn, augment, lay out.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "frontend/data/image/augment.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/image.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/image/resample.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Turns pictures and parts of them.

// Turns a picture in place; `spare` lends its memory.
void TurnImage(const Turn& turn, Image* image, Image* spare);

// Returns the turn that does what `first` does and then mirrors and flips as `then` does, which does not transpose.
Turn Compose(const Turn& first, const Turn& then);

// Returns the part of the stored picture (width × height) that `upright` is a part of once the picture is turned.
Box StoredBox(const Turn& turn, int width, int height, const Box& upright);

enum class PictureKind : uint8_t {
  kColors,  // [channels, height, width] or [height, width, channels]
  kMask     // [height, width]: classes as indices of a palette or grey values, never mixed
};

// Returns the part of a width × height picture (as it is looked at) that fills a sample without augmentation.
Box FitBox(int width, int height, const ImageOptions& options);

// A whole picture that many samples can be cut from.
struct DecodedPicture {
  PictureInfo info;
  Image image;  // with the channels of the samples
};

// Keeps decoders and buffers. One thread at a time; ForThisThread() has one for each.
class PicturePipeline {
 public:
  static PicturePipeline& ForThisThread();

  // Writes the sample to `out`, of options.sample() or, for masks, height × width bytes; of pictures that keep their
  // sizes, as many as it has, or it fails. Augmentation is a function of (pass, sample); pictures and masks of one
  // sample are cut and turned alike.
  absl::Status Run(ByteSpan file, const ImageOptions& options, PictureKind kind, const ReadPass& pass, int64_t sample,
                   std::span<std::byte> out);
  // The same in two steps: equal pixels, unless options.decode_scaling is set.
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
