#include "frontend/data/image/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "frontend/base/strings.h"
#include "frontend/data/image/picture_pipeline.h"

namespace onnxtrain {
namespace {

Image Numbered(int width, int height, int channels) {
  Image image;
  image.Reset(width, height, channels);
  std::iota(image.pixels.begin(), image.pixels.end(), uint8_t{0});
  return image;
}

std::string ParseError(const std::string& part) {
  return std::string(ToStd(ParseAugmentation(std::vector{part}).status().message()));
}

TEST(Augmentation, ParsesItsGrammar) {
  const std::vector<std::string> parts = {"crop:0.5-0.9", "flip",       "vflip:0.1",       "rotate:15",
                                          "color:0.3",    "erase:0.75", "randaugment:3/14"};
  const auto a = ParseAugmentation(parts);
  ASSERT_TRUE(a.ok()) << a.status();
  const Augmentation wanted{.crop_min = 0.5,
                            .crop_max = 0.9,
                            .flip = 0.5,
                            .vertical_flip = 0.1,
                            .rotate = 15,
                            .color = 0.3,
                            .randaugment = 3,
                            .magnitude = 14,
                            .erase = 0.75};
  EXPECT_EQ(*a, wanted);
}

TEST(Augmentation, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(ParseError("shake"),
            "'shake': there are crop, flip, vflip, rotate, color, randaugment, erase, mixup and cutmix");
  EXPECT_EQ(ParseError("rotate"), "'rotate': expected rotate:X with X above 0 and up to 180");
  EXPECT_EQ(ParseError("flip:2"), "'flip:2': expected flip:X with X above 0 and up to 1");
  EXPECT_THAT(ParseError("crop:0.9-0.5"), testing::HasSubstr("MIN-MAX"));
  EXPECT_THAT(ParseError("randaugment:2/99"), testing::HasSubstr("magnitude 0 to 30"));
  EXPECT_EQ(ParseError("flip:"), "'flip:': a value is missing behind ':'");
}

// Every turn of EXIF, against its definition: where the stored first row and column are shown.
TEST(Turn, ShowsPicturesUpright) {
  const Image stored = Numbered(3, 2, 1);  // 0 1 2 / 3 4 5
  const std::vector<std::vector<uint8_t>> upright = {{0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                                     {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                                     {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    Image image = stored, spare;
    TurnImage(UprightTurn(orientation), &image, &spare);
    EXPECT_EQ(image.pixels, upright[orientation - 1]) << orientation;
    EXPECT_EQ(image.width, orientation > 4 ? 2 : 3);
  }
}

TEST(Turn, PartsAndCompositionsAgreeWithWholePictures) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Turn turn = UprightTurn(orientation);
    Image whole = Numbered(5, 4, 3), spare;
    TurnImage(turn, &whole, &spare);
    const Box upright{1, 2, 2, 1};
    const Box box = StoredBox(turn, 5, 4, upright);
    const Image stored = Numbered(5, 4, 3);
    Image part;
    part.Reset(box.width, box.height, 3);
    for (int y = 0; y < box.height; ++y) std::copy_n(stored.row(box.y + y) + box.x * 3, box.width * 3, part.row(y));
    TurnImage(turn, &part, &spare);
    EXPECT_TRUE(std::equal(part.row(0), part.row(0) + 6, whole.row(2) + 3)) << orientation;
    for (const Turn then : {Turn{.mirror = true}, Turn{.flip = true}}) {
      Image once = Numbered(5, 4, 3), twice = whole;
      TurnImage(Compose(turn, then), &once, &spare);
      TurnImage(then, &twice, &spare);
      EXPECT_EQ(once.pixels, twice.pixels) << orientation;
    }
  }
}

TEST(Adjust, FollowsItsDefinitions) {
  Image image;
  image.Reset(2, 1, 1);
  const auto adjusted = [&](auto adjust) {
    image.pixels = {100, 200};
    adjust();
    return std::vector<int>(image.pixels.begin(), image.pixels.end());
  };
  EXPECT_EQ(adjusted([&] { AdjustBrightness(1.5, &image); }), (std::vector{150, 255}));
  EXPECT_EQ(adjusted([&] { AdjustContrast(0.5, &image); }), (std::vector{125, 175}));
  EXPECT_EQ(adjusted([&] { Solarize(128, &image); }), (std::vector{100, 55}));
  EXPECT_EQ(adjusted([&] { Posterize(2, &image); }), (std::vector{64, 192}));
  EXPECT_EQ(adjusted([&] { AutoContrast(&image); }), (std::vector{0, 255}));
  image.Reset(1, 1, 3);
  image.pixels = {200, 100, 0};
  AdjustSaturation(0, &image);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{118, 118, 118}));
}

TEST(Adjust, WarpMovesPixels) {
  Image image = Numbered(3, 3, 1), spare;
  Warp({1, 0, 1, 0, 1, 0}, Filter::kBilinear, &image, &spare);  // each pixel from its right neighbour
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{1, 2, 0, 4, 5, 0, 7, 8, 0}));
}

struct Drawn {
  Box box;
  Turn turn;
  std::vector<uint8_t> pixels;
};
Drawn Draw(const ReadPass& pass, int64_t sample, bool mask = false) {
  static const Augmentation augmentation{
      .crop_min = 0.2, .crop_max = 1, .flip = 0.5, .rotate = 30, .color = 0.5, .randaugment = 2, .erase = 0.5};
  Augmenter augmenter(augmentation, pass, sample);
  Drawn drawn{augmenter.DrawBox(100, 80, {}), augmenter.DrawTurn(), {}};
  Image image = Numbered(16, 16, mask ? 1 : 3), spare;
  augmenter.Change(mask, &image, &spare);
  drawn.pixels = image.pixels;
  return drawn;
}

TEST(Augmenter, IsAFunctionOfSeedEpochAndSample) {
  const ReadPass pass{.augment = true, .seed = 5, .epoch = 3};
  const Drawn first = Draw(pass, 11);
  EXPECT_EQ(Draw(pass, 11).pixels, first.pixels);
  EXPECT_EQ(Draw(pass, 11).box, first.box);
  EXPECT_NE(Draw(pass, 12).pixels, first.pixels);
  EXPECT_NE(Draw({.augment = true, .seed = 6, .epoch = 3}, 11).pixels, first.pixels);
  EXPECT_NE(Draw({.augment = true, .seed = 5, .epoch = 4}, 11).pixels, first.pixels);
}

TEST(Augmenter, MasksAreCutAsTheirPictures) {
  for (int64_t sample = 0; sample < 20; ++sample) {
    const ReadPass pass{.augment = true};
    EXPECT_EQ(Draw(pass, sample, true).box, Draw(pass, sample).box);
    EXPECT_EQ(Draw(pass, sample, true).turn.mirror, Draw(pass, sample).turn.mirror);
  }
}

TEST(Augmenter, BoxesHaveTheSharesAndProportionsThatAreAskedFor) {
  const Augmentation augmentation{.crop_min = 0.25, .crop_max = 0.5};
  double least = 1, most = 0;
  for (int64_t sample = 0; sample < 500; ++sample) {
    Augmenter augmenter(augmentation, {.augment = true}, sample);
    const Box box = augmenter.DrawBox(640, 480, {});
    ASSERT_TRUE(box.x >= 0 && box.y >= 0 && box.x + box.width <= 640 && box.y + box.height <= 480);
    const double share = double(box.width) * box.height / (640 * 480), ratio = double(box.width) / box.height;
    least = std::min(least, share), most = std::max(most, share);
    EXPECT_GT(ratio, 0.74);
    EXPECT_LT(ratio, 1.35);
  }
  EXPECT_NEAR(least, 0.25, 0.01);
  EXPECT_NEAR(most, 0.5, 0.01);
}

}  // namespace
}  // namespace onnxtrain
