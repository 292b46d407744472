#include "frontend/data/image/array_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace onnxtrain {
namespace {

constexpr int kHeight = 12, kWidth = 10, kPixels = kHeight * kWidth;

// A disk of class 1 to the left of the center, of class 2 above it.
int ClassAt(int y, int x) {
  if (std::hypot(y - 6, x - 3) < 2.5) return 1;
  return std::hypot(y - 2, x - 7) < 2 ? 2 : 0;
}

// One scene as 8-bit planes, as interleaved ones, as floats and as classes.
std::shared_ptr<const Dataset> Scene() {
  constexpr int64_t kSamples = 4;
  HostTensor planes({DType::kUInt8, {kSamples, 3, kHeight, kWidth}});
  HostTensor pixels({DType::kUInt8, {kSamples, kHeight, kWidth, 3}});
  HostTensor floats({DType::kFloat64, {kSamples, kHeight, kWidth}});
  HostTensor classes({DType::kInt64, {kSamples, 1, kHeight, kWidth}});
  for (int64_t i = 0; i < kSamples; ++i) {
    for (int p = 0; p < kPixels; ++p) {
      const int value = ClassAt(p / kWidth, p % kWidth);
      floats.Set(i * kPixels + p, value * 100);
      classes.SetInt(i * kPixels + p, value);
      for (int c = 0; c < 3; ++c) {
        planes.SetInt((i * 3 + c) * kPixels + p, value * 100 + c);
        pixels.SetInt((i * kPixels + p) * 3 + c, value * 100 + c);
      }
    }
  }
  auto data = InMemoryDataset("scene", {"planes", "pixels", "floats", "classes"}, {planes, pixels, floats, classes});
  EXPECT_TRUE(data.ok()) << data.status();
  return *data;
}

std::shared_ptr<const Dataset> Augment(const Augmentation& augmentation) {
  const auto scene = Scene();
  std::vector<ArrayPictures> pictures;
  for (int c = 0; c < 3; ++c)
    pictures.push_back({.column = c, .layout = *FindPixelLayout(scene->columns()[c].sample.shape)});
  pictures.push_back({.column = 3, .layout = {.height = kHeight, .width = kWidth}, .label = true});
  return AugmentArrays(scene, augmentation, pictures);
}

template <typename T>
std::vector<T> Read(const Dataset& data, int column, const ReadPass& pass, int64_t sample = 1) {
  std::vector<T> values(data.columns()[column].sample.elements());
  const absl::Status status = data.Read(sample, column, pass, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

TEST(ArrayPictures, KnowsLayouts) {
  EXPECT_TRUE(FindPixelLayout({28, 28}).has_value());
  EXPECT_FALSE(FindPixelLayout({3, 32, 32})->channels_last);
  EXPECT_TRUE(FindPixelLayout({32, 30, 3})->channels_last);
  EXPECT_EQ(FindPixelLayout({32, 30, 3})->width, 30);
  EXPECT_FALSE(FindPixelLayout({4, 32, 32}).has_value());
  EXPECT_FALSE(FindPixelLayout({16}).has_value());
  EXPECT_FALSE(FindPixelLayout({785}).has_value());
  EXPECT_EQ(FindPixelLayout({784})->height, 28);
  EXPECT_EQ(FindPixelLayout({3072})->channels, 3);
  EXPECT_TRUE(HoldsPixels({DType::kUInt8, {784}}));
  EXPECT_FALSE(HoldsPixels({DType::kUInt8, {30}}));
  EXPECT_FALSE(FindPixelLayout({1, 1 << 13, 1 << 13}).has_value());
}

TEST(ArrayPictures, MirrorsEveryTypeExactly) {
  const auto data = Augment({.flip = 1});
  const ReadPass pass{.augment = true, .seed = 1};
  const auto planes = Read<uint8_t>(*data, 0, pass), pixels = Read<uint8_t>(*data, 1, pass);
  const auto floats = Read<double>(*data, 2, pass);
  const auto classes = Read<int64_t>(*data, 3, pass);
  for (int p = 0; p < kPixels; ++p) {
    const int value = ClassAt(p / kWidth, kWidth - 1 - p % kWidth);
    ASSERT_EQ(classes[p], value) << p;
    ASSERT_EQ(floats[p], value * 100) << p;
    for (int c = 0; c < 3; ++c) {
      ASSERT_EQ(planes[c * kPixels + p], value * 100 + c) << p;
      ASSERT_EQ(pixels[p * 3 + c], value * 100 + c) << p;
    }
  }
}

TEST(ArrayPictures, EvaluationSeesThemAsTheyAre) {
  const auto data = Augment({.crop_min = 0.3, .crop_max = 0.5, .flip = 1, .rotate = 30});
  EXPECT_EQ(Read<double>(*data, 2, {}), Read<double>(*Scene(), 2, {}));
  EXPECT_EQ(Read<uint8_t>(*data, 0, {}), Read<uint8_t>(*Scene(), 0, {}));
}

TEST(ArrayPictures, ChoicesFollowFromThePassAndTheSample) {
  const auto data = Augment({.crop_min = 0.3, .crop_max = 0.9, .flip = 0.5, .rotate = 30, .erase = 0.5});
  const ReadPass first{.augment = true, .seed = 5}, second{.augment = true, .seed = 5, .epoch = 1};
  EXPECT_EQ(Read<uint8_t>(*Augment({}), 0, first), Read<uint8_t>(*Scene(), 0, {}));
  EXPECT_EQ(Read<double>(*data, 2, first), Read<double>(*data, 2, first));
  EXPECT_NE(Read<double>(*data, 2, first), Read<double>(*data, 2, second));
  EXPECT_NE(Read<double>(*data, 2, first, 1), Read<double>(*data, 2, first, 2)) << "equal scenes of two samples";
}

// Both ways to interpolate agree, and where no edge is near, so does the class, which is that of the nearest pixel. The
// border of the scene is black, as what is outside of it.
TEST(ArrayPictures, LabelsMoveWithTheirPictures) {
  const Augmentation cut{.crop_min = 0.4, .crop_max = 0.9, .flip = 0.5, .vertical_flip = 0.5};
  const Augmentation rotated{.flip = 0.5, .vertical_flip = 0.5, .rotate = 40};
  for (const Augmentation& augmentation : {cut, rotated}) {
    const auto data = Augment(augmentation);
    int moved = 0, certain = 0;
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      const ReadPass pass{.augment = true, .seed = 9, .epoch = epoch};
      const auto planes = Read<uint8_t>(*data, 0, pass), pixels = Read<uint8_t>(*data, 1, pass);
      const auto floats = Read<double>(*data, 2, pass);
      const auto classes = Read<int64_t>(*data, 3, pass);
      for (int p = 0; p < kPixels; ++p) {
        ASSERT_EQ(planes[p], pixels[p * 3]) << "both layouts of 8-bit pixels";
        ASSERT_NEAR(planes[p], floats[p], 1) << "epoch " << epoch << ", pixel " << p;
        if (floats[p] == 0 || floats[p] == 200) {
          ASSERT_EQ(classes[p] * 100, floats[p]) << "epoch " << epoch << ", pixel " << p;
          ++certain;
        }
        moved += classes[p] != ClassAt(p / kWidth, p % kWidth);
      }
    }
    EXPECT_GT(certain, 20 * kPixels * 50 / 100);
    EXPECT_GT(moved, 20 * kPixels * 10 / 100);
  }
}

TEST(ArrayPictures, RandAugmentAndColorsChangePixelsOnly) {
  const auto data = Augment({.color = 0.5});
  const ReadPass pass{.augment = true, .seed = 3};
  EXPECT_NE(Read<uint8_t>(*data, 0, pass), Read<uint8_t>(*Scene(), 0, {}));
  EXPECT_EQ(Read<int64_t>(*data, 3, pass), Read<int64_t>(*Scene(), 3, {}));
  EXPECT_TRUE(CanAugment({.color = 0.5}, DType::kUInt8));
  EXPECT_FALSE(CanAugment({.color = 0.5}, DType::kFloat32));
  EXPECT_FALSE(CanAugment({.randaugment = 1}, DType::kFloat32));
  EXPECT_TRUE(CanAugment({.rotate = 5}, DType::kFloat16));
  EXPECT_TRUE(CanAugment({.rotate = 5}, DType::kInt64));
  EXPECT_FALSE(CanAugment({.color = 0.5}, DType::kInt64));
  EXPECT_FALSE(CanAugment({.rotate = 5}, DType::kBool));
}

TEST(ArrayPictures, ErasesABoxOfFloats) {
  HostTensor ones({DType::kFloat32, {1, 3, 16, 16}});
  for (int64_t i = 0; i < ones.size(); ++i) ones.Set(i, 1);
  const auto source = InMemoryDataset("ones", {"x"}, {ones});
  ASSERT_TRUE(source.ok());
  const auto data = AugmentArrays(*source, {.erase = 1}, {{.column = 0, .layout = *FindPixelLayout({3, 16, 16})}});
  const auto values = Read<float>(*data, 0, {.augment = true, .seed = 4}, 0);
  const auto erased = std::ranges::count(values, 0.0F);
  EXPECT_GT(erased, 3 * 16 * 16 / 100);
  EXPECT_LT(erased, 3 * 16 * 16 / 2);
  EXPECT_EQ(erased + std::ranges::count(values, 1.0F), 3 * 16 * 16);
}

}  // namespace
}  // namespace onnxtrain
