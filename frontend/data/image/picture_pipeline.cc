#include "frontend/data/image/picture_pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/image/image.h"

namespace onnxtrain {
namespace {

// Copies `width` pixels that are `step` bytes apart.
template <int kChannels>
void CopyPixels(const uint8_t* from, std::ptrdiff_t step, int width, uint8_t* to) {
  for (int x = 0; x < width; ++x, from += step, to += kChannels) std::memcpy(to, from, kChannels);
}

}  // namespace

void TurnImage(const Turn& turn, Image* image, Image* spare) {
  if (!turn.mirror && !turn.flip && !turn.transpose) return;
  const int w = image->width, h = image->height, channels = image->channels;
  const auto copy = channels == 3 ? CopyPixels<3> : CopyPixels<1>;
  spare->Reset(turn.transpose ? h : w, turn.transpose ? w : h, channels);
  // Strides through the source, so that the result is written in order.
  const auto step = static_cast<std::ptrdiff_t>(channels), line = static_cast<std::ptrdiff_t>(image->stride());
  const std::ptrdiff_t along = turn.mirror ? -step : step, down = turn.flip ? -line : line;
  const uint8_t* start = image->row(turn.flip ? h - 1 : 0) + (turn.mirror ? (w - 1) * step : 0);
  const std::ptrdiff_t inner = turn.transpose ? down : along, outer = turn.transpose ? along : down;
  for (int y = 0; y < spare->height; ++y) copy(start + y * outer, inner, spare->width, spare->row(y));
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

namespace {

int Scaled(int extent, int from, int to) {
  return static_cast<int>(std::clamp<int64_t>((int64_t{extent} * to + from / 2) / from, 1, to));
}

}  // namespace

std::pair<int, int> SampleSize(int width, int height, const PictureSizes& sizes) {
  constexpr int64_t kMaxWidth = 1 << 16;
  if (sizes.height == 0) return {width, height};
  const int64_t scaled = (int64_t{width} * sizes.height + height / 2) / height;
  return {static_cast<int>(std::clamp<int64_t>(scaled, 1, kMaxWidth)), static_cast<int>(sizes.height)};
}

namespace {

// Returns width and height of the picture within the sample.
std::pair<int, int> FilledSize(int width, int height, const ImageOptions& o) {
  if (o.sizes.has_value()) return SampleSize(width, height, *o.sizes);
  if (o.fit != ImageFit::kPad) return {o.width, o.height};
  if (int64_t{width} * o.height > int64_t{height} * o.width) return {o.width, Scaled(height, width, o.width)};
  return {Scaled(width, height, o.height), o.height};
}

// Centers a picture between black bars.
void Pad(int width, int height, Image* image, Image* spare) {
  if (image->width == width && image->height == height) return;
  spare->Reset(width, height, image->channels);
  std::ranges::fill(spare->pixels, uint8_t{0});
  const int x = (width - image->width) / 2, y = (height - image->height) / 2;
  for (int r = 0; r < image->height; ++r)
    std::memcpy(spare->row(y + r) + static_cast<size_t>(x) * image->channels, image->row(r), image->stride());
  std::swap(*image, *spare);
}

void SwapRedAndBlue(Image* image) {
  for (size_t i = 0; i + 2 < image->pixels.size(); i += 3) std::swap(image->pixels[i], image->pixels[i + 2]);
}

// Writes n interleaved RGB pixels as three planes in one pass.
ONNXTRAIN_FOR_AVX2 void WriteColorPlanes(const uint8_t* __restrict from, size_t n, uint8_t* __restrict out) {
  for (size_t i = 0; i < n; ++i) {
    out[i] = from[3 * i];
    out[n + i] = from[3 * i + 1];
    out[2 * n + i] = from[3 * i + 2];
  }
}

void WritePlanes(const Image& image, uint8_t* out) {
  if (image.channels == 3) return WriteColorPlanes(image.pixels.data(), image.pixels.size() / 3, out);
  CHECK_EQ(image.channels, 1);
  std::ranges::copy(image.pixels, out);
}

// The error that a picture's size differs from the one found when the data was opened, or from that of its counterpart.
absl::Status Resized(const Image& image) {
  return Invalid("has ", image.height, " × ", image.width,
                 " pixels, its counterpart another size (`resize` or `image_size` makes them one size)");
}

}  // namespace

Box FitBox(int width, int height, const ImageOptions& o) {
  if (o.fit != ImageFit::kCrop || o.sizes.has_value()) return {0, 0, width, height};
  Box box{0, 0, width, height};
  if (int64_t{width} * o.height > int64_t{height} * o.width) {
    box.width = std::clamp<int>(std::lround(double(height) * o.width / o.height), 1, width);
  } else {
    box.height = std::clamp<int>(std::lround(double(width) * o.height / o.width), 1, height);
  }
  box.x = (width - box.width) / 2;
  box.y = (height - box.height) / 2;
  return box;
}

PicturePipeline& PicturePipeline::ForThisThread() {
  thread_local PicturePipeline pipeline;
  return pipeline;
}

// The geometric steps for one picture.
struct PicturePipeline::Plan {
  Box stored;  // crop in stored pixels
  Turn turn;
  int width, height;  // size of the resized crop
  bool augments;
};

PicturePipeline::Plan PicturePipeline::MakePlan(const PictureInfo& info, const ImageOptions& options,
                                                const ReadPass& pass, Augmenter* augmenter) {
  const Turn upright = UprightTurn(info.orientation);
  const int width = upright.transpose ? info.height : info.width, height = upright.transpose ? info.width : info.height;
  Plan plan{.turn = upright, .augments = pass.augment && options.augment.changes_pictures()};
  Box box = FitBox(width, height, options);
  if (plan.augments) {
    box = augmenter->DrawBox(width, height, box);
    plan.turn = Compose(upright, augmenter->DrawTurn());
  }
  const bool cut = plan.augments && options.augment.crop_max > 0;  // random crops have their own aspect ratio
  std::tie(plan.width, plan.height) =
      cut ? std::pair(options.width, options.height) : FilledSize(box.width, box.height, options);
  if (upright.transpose) std::swap(plan.width, plan.height);
  plan.stored = StoredBox(upright, info.width, info.height, box);
  return plan;
}

absl::Status PicturePipeline::Decode(const DecodeRequest& request, const ImageOptions& options, Image* image) {
  RETURN_IF_ERROR(decoder_.Decode(request, image));
  if (request.indices && !IsGrey(*image))
    return Invalid("a mask must have a palette or be grey, this picture has colors");
  SetChannels(request.indices ? 1 : options.channels, image);
  return absl::OkStatus();
}

absl::Status PicturePipeline::Finish(const Image& decoded, const PictureInfo& info, const Plan& plan,
                                     const ImageOptions& options, bool mask, Augmenter* augmenter,
                                     std::span<std::byte> out) {
  resampler_.Resize(decoded, info, plan.stored, mask ? Filter::kNearest : options.filter, plan.width, plan.height,
                    &image_);
  TurnImage(plan.turn, &image_, &spare_);
  if (!options.sizes.has_value()) Pad(options.width, options.height, &image_, &spare_);
  if (plan.augments) augmenter->Change(mask, &image_, &spare_);
  if (out.size() != image_.pixels.size()) return Resized(image_);
  if (options.bgr && !mask) SwapRedAndBlue(&image_);
  auto* to = reinterpret_cast<uint8_t*>(out.data());
  if (options.channels_last || mask) {
    std::ranges::copy(image_.pixels, to);
  } else {
    WritePlanes(image_, to);
  }
  return absl::OkStatus();
}

absl::Status PicturePipeline::Run(ByteSpan file, const ImageOptions& options, PictureKind kind, const ReadPass& pass,
                                  int64_t sample, std::span<std::byte> out) {
  const bool mask = kind == PictureKind::kMask;
  ASSIGN_OR_RETURN(const PictureInfo info, decoder_.Open(file));
  Augmenter augmenter(options.augment, pass, sample);
  const Plan plan = MakePlan(info, options, pass, &augmenter);
  const bool scaling = options.decode_scaling && !mask;
  const DecodeRequest request{.part = plan.stored,
                              .min_width = scaling ? plan.width : 0,
                              .min_height = scaling ? plan.height : 0,
                              .indices = mask};
  RETURN_IF_ERROR(Decode(request, options, &decoded_));
  return Finish(decoded_, info, plan, options, mask, &augmenter, out);
}

absl::Status PicturePipeline::Decode(ByteSpan file, const ImageOptions& options, PictureKind kind,
                                     DecodedPicture* decoded) {
  ASSIGN_OR_RETURN(decoded->info, decoder_.Open(file));
  return Decode({.indices = kind == PictureKind::kMask}, options, &decoded->image);
}

absl::Status PicturePipeline::Run(const DecodedPicture& decoded, const ImageOptions& options, PictureKind kind,
                                  const ReadPass& pass, int64_t sample, std::span<std::byte> out) {
  Augmenter augmenter(options.augment, pass, sample);
  const Plan plan = MakePlan(decoded.info, options, pass, &augmenter);
  return Finish(decoded.image, decoded.info, plan, options, kind == PictureKind::kMask, &augmenter, out);
}

}  // namespace onnxtrain
