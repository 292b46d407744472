#include "frontend/data/image/array_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/image/augment.h"
#include "frontend/data/image/picture_pipeline.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// The source of each pixel of an augmented sample.
struct Geometry {
  Box box;
  Turn turn;
  Affine rotation;
};

// Linear interpolation along one axis: between pixels `low` and `high`, with weight `share` for `high`.
struct Between {
  int low = 0, high = 0;
  float share = 0;
};

// Maps position `at` of `extent` output pixels to the source pixels [begin, begin + part) and clamps to them.
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

// Crops, turns, rotates and erases `from` as the augmenter draws it, with one bilinear interpolation. Pixels from
// outside the picture are 0. `from` and `to` must not overlap.
void AugmentFloats(const Augmentation& augmentation, const PixelLayout& o, Augmenter* augmenter,
                   std::span<const float> from, std::span<float> to) {
  Geometry geometry{.rotation = {1, 0, 0, 0, 1, 0}};
  geometry.box = augmenter->DrawBox(o.width, o.height, {0, 0, o.width, o.height});
  geometry.turn = augmenter->DrawTurn();
  if (augmentation.rotate > 0) geometry.rotation = augmenter->DrawRotation();
  WarpPixels(o, geometry, from, to);
  if (const auto erased = augmenter->DrawErased(o.width, o.height)) EraseFloats(o, *erased, to);
}

constexpr int kMinSide = 8;                    // smallest side of a flattened picture
constexpr int64_t kMaxPlaces = (1 << 24) - 1;  // pixel numbers that fit into 24 bits, besides 0 for outside

bool AreChannels(int64_t extent) { return extent == 1 || extent == 3; }

ImageOptions MakeOptions(const PixelLayout& layout, const Augmentation& augmentation) {
  return {.width = layout.width,
          .height = layout.height,
          .channels = layout.channels,
          .channels_last = layout.channels_last,
          .augment = augmentation};
}

// Returns the layout of a flattened square picture, as tables store MNIST and CIFAR.
std::optional<PixelLayout> FindSquare(int64_t pixels) {
  for (const int channels : {1, 3}) {
    const auto side = static_cast<int>(std::lround(std::sqrt(static_cast<double>(pixels) / channels)));
    if (side >= kMinSide && int64_t{side} * side * channels == pixels && pixels / channels <= kMaxPlaces)
      return PixelLayout{.height = side, .width = side, .channels = channels};
  }
  return std::nullopt;
}

// Converts a sample to interleaved channels.
void ReadPixels(const PixelLayout& layout, std::span<const std::byte> from, DecodedPicture* picture) {
  picture->info = {.width = layout.width, .height = layout.height};
  picture->image.Reset(layout.width, layout.height, layout.channels);
  const auto* values = reinterpret_cast<const uint8_t*>(from.data());
  uint8_t* to = picture->image.pixels.data();
  const size_t channels = layout.channels_last ? 1 : layout.channels, plane = from.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < plane; ++i) to[i * channels + c] = values[c * plane + i];
  }
}

// Returns a picture whose 24-bit colors number its pixels from 1. Augmenting it yields the source of every pixel.
DecodedPicture NumberPixels(const PixelLayout& layout) {
  DecodedPicture picture{.info = {.width = layout.width, .height = layout.height}};
  picture.image.Reset(layout.width, layout.height, 3);
  uint8_t* to = picture.image.pixels.data();
  for (uint32_t n = 1; n <= static_cast<uint32_t>(layout.width * layout.height); ++n, to += 3) {
    for (int b = 0; b < 3; ++b) to[b] = static_cast<uint8_t>(n >> 8 * b);
  }
  return picture;
}

class Augmented : public DatasetView {
 public:
  Augmented(std::shared_ptr<const Dataset> source, const Augmentation& augmentation,
            const std::vector<ArrayPictures>& pictures)
      : DatasetView(std::move(source)),
        augmentation_(augmentation),
        numbered_(NumberPixels(pictures[0].layout)),
        columns_(source_->columns()),
        pictures_(columns_.size()) {
    for (const ArrayPictures& p : pictures) {
      CHECK(p.layout.SameSize(pictures[0].layout));
      pictures_[p.column] = p;
      columns_[p.column].augmented = true;
    }
  }

  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return source_->StableName(i); }
  std::vector<std::string> notes() const override { return source_->notes(); }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (!pass.augment || !pictures_[c].has_value()) return source_->Read(i, c, pass, out);
    thread_local std::vector<std::byte> sample;
    sample.resize(out.size());
    RETURN_IF_ERROR(source_->Read(i, c, pass, sample));
    const ArrayPictures& picture = *pictures_[c];
    if (picture.label) return MovePixels(picture.layout, pass, i, sample, out);
    if (columns_[c].sample.dtype == DType::kUInt8) return ChangePixels(picture.layout, pass, i, sample, out);
    return ChangeFloats(columns_[c].sample, picture.layout, pass, i, sample, out);
  }

 private:
  absl::Status ChangePixels(const PixelLayout& layout, const ReadPass& pass, int64_t i,
                            std::span<const std::byte> sample, std::span<std::byte> out) const {
    thread_local DecodedPicture picture;
    ReadPixels(layout, sample, &picture);
    return PicturePipeline::ForThisThread().Run(picture, MakeOptions(layout, augmentation_), PictureKind::kColors, pass,
                                                i, out);
  }

  absl::Status ChangeFloats(const Type& type, const PixelLayout& layout, const ReadPass& pass, int64_t i,
                            std::span<const std::byte> sample, std::span<std::byte> out) const {
    thread_local std::vector<float> from, to;
    from.resize(type.elements());
    to.resize(type.elements());
    auto* values = reinterpret_cast<std::byte*>(from.data());
    RETURN_IF_ERROR(ConvertValues(type.dtype, sample, DType::kFloat32, values, 1));
    Augmenter augmenter(augmentation_, pass, i);
    AugmentFloats(augmentation_, layout, &augmenter, from, to);
    if (!IsFloat(type.dtype)) std::ranges::transform(to, to.begin(), [](float v) { return std::nearbyint(v); });
    return ConvertValues(DType::kFloat32, std::as_bytes(std::span<const float>(to)), type.dtype, out.data(), 1);
  }

  // Moves values of any type like the pixel numbers of NumberPixels; number 0 is outside and yields 0.
  absl::Status MovePixels(const PixelLayout& layout, const ReadPass& pass, int64_t i, std::span<const std::byte> sample,
                          std::span<std::byte> out) const {
    thread_local std::vector<std::byte> places;
    places.resize(numbered_.image.pixels.size());
    RETURN_IF_ERROR(PicturePipeline::ForThisThread().Run(numbered_, MakeOptions(layout, augmentation_),
                                                         PictureKind::kMask, pass, i, places));
    const size_t pixels = places.size() / 3, planes = layout.channels_last ? 1 : layout.channels;
    const size_t size = out.size() / pixels / planes;  // bytes per pixel in a plane
    for (size_t p = 0; p < pixels; ++p) {
      size_t from = 0;
      for (int b = 0; b < 3; ++b) from |= std::to_integer<size_t>(places[3 * p + b]) << 8 * b;
      for (size_t plane = 0; plane < planes; ++plane) {
        std::byte* to = out.data() + (plane * pixels + p) * size;
        if (from == 0) std::memset(to, 0, size);
        if (from > 0) std::memcpy(to, sample.data() + (plane * pixels + from - 1) * size, size);
      }
    }
    return absl::OkStatus();
  }

  Augmentation augmentation_;
  DecodedPicture numbered_;
  std::vector<Column> columns_;
  std::vector<std::optional<ArrayPictures>> pictures_;  // one entry per column; nullopt: unchanged
};

}  // namespace

bool HoldsPixels(const Type& sample) {
  return sample.dtype == DType::kUInt8 && (sample.rank() >= 2 || FindPixelLayout(sample.shape).has_value());
}

std::optional<PixelLayout> FindPixelLayout(const Shape& s) {
  PixelLayout layout;
  if (s.size() == 1) return FindSquare(s[0]);
  if (s.size() == 3) layout.channels_last = AreChannels(s[2]) && !AreChannels(s[0]);
  if (s.size() == 2) {
    layout = {.height = static_cast<int>(s[0]), .width = static_cast<int>(s[1])};
  } else if (s.size() == 3 && AreChannels(layout.channels_last ? s[2] : s[0])) {
    const size_t rows = layout.channels_last ? 0 : 1;
    layout.height = static_cast<int>(s[rows]);
    layout.width = static_cast<int>(s[rows + 1]);
    layout.channels = static_cast<int>(layout.channels_last ? s[2] : s[0]);
  } else {
    return std::nullopt;
  }
  if (NumElements(s) < 1 || NumElements(s) / layout.channels > kMaxPlaces) return std::nullopt;
  return layout;
}

bool CanAugment(const Augmentation& augmentation, DType dtype) {
  return dtype == DType::kUInt8 || (dtype != DType::kBool && augmentation.color == 0 && augmentation.randaugment == 0);
}

std::shared_ptr<const Dataset> AugmentArrays(std::shared_ptr<const Dataset> source, const Augmentation& augmentation,
                                             const std::vector<ArrayPictures>& pictures) {
  return std::make_shared<Augmented>(std::move(source), augmentation, pictures);
}

}  // namespace onnxtrain
