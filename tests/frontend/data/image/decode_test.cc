#include "frontend/data/image/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "frontend/base/strings.h"
#include "frontend/data/image/image.h"
#include "frontend/data/image/picture_pipeline.h"
#include "tests/frontend/data/image/recorded.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;

absl::StatusOr<Image> Decode(const std::vector<uint8_t>& file, const DecodeRequest& request = {}) {
  static PictureDecoder decoder;
  const auto info = decoder.Open(file);
  if (!info.ok()) return info.status();
  Image image, spare;
  if (absl::Status status = decoder.Decode(request, &image); !status.ok()) return status;
  if (!request.part.has_value()) TurnImage(UprightTurn(info->orientation), &image, &spare);
  return image;
}

std::string Error(const std::vector<uint8_t>& file) { return std::string(ToStd(Decode(file).status().message())); }

std::vector<uint8_t> Find(const std::string& name) {
  for (RecordedPicture& p : ReadRecordedPictures()) {
    if (p.name == name) return p.file;
  }
  ADD_FAILURE() << name;
  return {};
}

int LargestDifference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  int most = a.size() == b.size() ? 0 : 256;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST(Decode, EqualsRecordedPixels) {
  const auto pictures = ReadRecordedPictures();
  ASSERT_GT(pictures.size(), 50u);
  for (const RecordedPicture& p : pictures) {
    const auto image = Decode(p.file);
    ASSERT_TRUE(image.ok()) << p.name << ": " << image.status();
    EXPECT_EQ(image->width, p.width) << p.name;
    EXPECT_EQ(image->channels, p.channels) << p.name;
    EXPECT_EQ(LargestDifference(image->pixels, p.pixels), 0) << p.name;
  }
}

TEST(Decode, PartsAreResizedWithinOneLevel) {
  const Box part{2, 1, 9, 7};
  PictureDecoder decoder;
  Resampler resampler;
  for (const RecordedPicture& p : ReadRecordedPictures()) {
    const auto info = decoder.Open(p.file);
    ASSERT_TRUE(info.ok()) << p.name;
    if (p.name.starts_with("turn") && p.name.ends_with(".tif")) continue;  // Pillow turns them before it cuts
    Image image, resized;
    ASSERT_TRUE(decoder.Decode({.part = part}, &image).ok()) << p.name;
    resampler.Resize(image, *info, part, Filter::kBilinear, 7, 5, &resized);
    EXPECT_LE(LargestDifference(resized.pixels, p.part), 1) << p.name;
  }
}

TEST(Decode, IndicesOfPalettesAreNoColors) {
  for (const char* name :
       {"palette.png", "palette4.png", "i0.gif", "palette.bmp", "palette.tif", "tiled_palette.tif"}) {
    const auto image = Decode(Find(name), {.indices = true});
    ASSERT_TRUE(image.ok()) << name << ": " << image.status();
    EXPECT_EQ(image->channels, 1) << name;
    EXPECT_LT(*std::max_element(image->pixels.begin(), image->pixels.end()), 37) << name;
  }
}

TEST(Decode, TruncatedFilesAreErrors) {
  for (const char* name : {"q75s2pFalse.jpg", "q75s2pTrue.jpg", "rgb.png", "palette.png", "rgb.bmp", "lossy.webp",
                           "lossless.webp", "i0.gif", "i1.gif", "tiles.tif", "big_endian.tif"}) {
    std::vector<uint8_t> file = Find(name);
    file.resize(file.size() * 3 / 5);
    EXPECT_THAT(Error(file), testing::AnyOf(HasSubstr("broken"), HasSubstr("truncated"))) << name;
  }
}

TEST(Decode, WhatIsNoPictureIsAnError) {
  EXPECT_EQ(Error({}), "the file is empty");
  EXPECT_EQ(Error({'h', 'e', 'l', 'l', 'o'}), "not a JPEG, PNG, WebP, GIF, BMP or TIFF picture");
}

// The TIFF, little endian, with one number in an entry of its directory, which becomes that of `other` where it is
// given.
std::vector<uint8_t> SetTag(std::vector<uint8_t> file, int tag, uint32_t value, int other = 0) {
  const size_t directory = file[4] | file[5] << 8 | file[6] << 16;
  for (size_t at = directory + 2; at + 12 <= file.size(); at += 12) {
    if ((file[at] | file[at + 1] << 8) != tag) continue;
    if (other > 0) file[at] = static_cast<uint8_t>(other), file[at + 1] = static_cast<uint8_t>(other >> 8);
    file[at + 2] = 4;  // a number of 32 bits
    for (int i = 0; i < 4; ++i) {
      file[at + 4 + i] = i == 0 ? 1 : 0;  // one
      file[at + 8 + i] = static_cast<uint8_t>(value >> 8 * i);
    }
    return file;
  }
  ADD_FAILURE() << tag;
  return file;
}

TEST(Decode, TiffsOfOtherNumbersAreNamed) {
  EXPECT_EQ(Error(SetTag(Find("grey16.tif"), 258, 12)).substr(0, 8), "TIFF of ");
  EXPECT_THAT(Error(SetTag(Find("tiles.tif"), 322, 1 << 30)),
              testing::AnyOf(HasSubstr("64 MiB"), HasSubstr("broken TIFF")));
  constexpr int kSoftware = 305, kSampleFormat = 339;
  EXPECT_THAT(Error(SetTag(Find("white.tif"), kSoftware, 3, kSampleFormat)),
              HasSubstr("8-bit floats is not supported"));
}

// The extents that the header of each format declares, in place.
TEST(Decode, BombsAreRefusedBeforeMemoryIsAllocated) {
  std::vector<uint8_t> bmp = Find("rgb.bmp"), gif = Find("i0.gif"), jpeg = Find("q75s2pFalse.jpg");
  for (int i = 0; i < 2; ++i) bmp[18 + i] = bmp[22 + i] = 0xFF;
  for (int i = 0; i < 4; ++i) gif[6 + i] = 0xFF;
  for (size_t i = 0; i + 8 < jpeg.size(); ++i) {
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xC0) jpeg[i + 5] = jpeg[i + 6] = jpeg[i + 7] = jpeg[i + 8] = 0xF0;
  }
  for (const auto& file : {bmp, gif, jpeg, SetTag(Find("rgb_raw.tif"), 256, 1 << 24)})
    EXPECT_THAT(Error(file), HasSubstr("pixels, more than 64 Mi"));
}

// Damages bytes, and cuts; every result is a picture of the declared size or one line of error.
TEST(Decode, ChunksOfAPngEndWithinTheFile) {
  const std::string file(
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x01\x03\0\0\0"
      "\x25\xdb\x56\xca\x3f\xff\xff\xffiTXt\0",
      42);
  EXPECT_EQ(Error({file.begin(), file.end()}), "broken PNG: a chunk of 1073741823 bytes, and 1 are left");
}

TEST(Decode, SurvivesDamage) {
  std::mt19937 random(1);
  int refused = 0, decoded = 0;
  for (const RecordedPicture& p : ReadRecordedPictures()) {
    for (int round = 0; round < 60; ++round) {
      std::vector<uint8_t> file = p.file;
      for (unsigned n = random() % 4 + 1; n > 0; --n) file[random() % file.size()] = static_cast<uint8_t>(random());
      if (round % 3 == 0) file.resize(random() % file.size());
      const auto image = Decode(file);
      ++(image.ok() ? decoded : refused);
      const size_t size = image.ok() ? size_t(image->width) * image->height * image->channels : 0;
      EXPECT_EQ(image.ok() ? image->pixels.size() : 0, size);
      EXPECT_EQ(image.status().message().find('\n'), absl::string_view::npos);
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(decoded, 100);
}

TEST(Exif, BrokenDirectoriesAreUpright) {
  const std::vector<uint8_t> good = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
  EXPECT_EQ(ExifOrientation(good), 6);
  for (size_t size = 0; size < 20; ++size) {
    const int turn = ExifOrientation(std::span(good).first(size));
    EXPECT_EQ(turn, size == 19 ? turn : 1) << size;
  }
  std::vector<uint8_t> far = good;
  far[4] = far[5] = far[6] = far[7] = 0xFF;
  EXPECT_EQ(ExifOrientation(far), 1);
}

}  // namespace
}  // namespace onnxtrain
