// Compares resized pictures with those of Pillow, which make_resizes.py has written.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "frontend/data/image/image.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

constexpr int kFilters = 6;

Image ReadPixels(int channels, std::istream& in) {
  int width = 0, height = 0;
  in >> width >> height;
  in.get();
  Image image;
  if (!in) return image;
  image.Reset(width, height, channels);
  in.read(reinterpret_cast<char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
  return image;
}

TEST(Resize, EqualsPillowWithinOneLevel) {
  std::ifstream in(RepoPath("tests/frontend/data/image/resizes.bin"), std::ios::binary);
  Resampler resampler;
  int compared = 0;
  for (int channels = 0; in >> channels;) {
    const Image picture = ReadPixels(channels, in);
    const PictureInfo info{.width = picture.width, .height = picture.height};
    for (int number = 0; number < kFilters; ++number, ++compared) {
      const Image expected = ReadPixels(channels, in);
      Image resized;
      resampler.Resize(picture, info, {0, 0, picture.width, picture.height}, *FindFilter(number), expected.width,
                       expected.height, &resized);
      ASSERT_EQ(resized.pixels.size(), expected.pixels.size());
      int most = 0;
      for (size_t i = 0; i < expected.pixels.size(); ++i)
        most = std::max(most, std::abs(resized.pixels[i] - expected.pixels[i]));
      EXPECT_LE(most, 1) << FilterName(*FindFilter(number)) << ", " << channels << " channels, " << picture.width
                         << " × " << picture.height << " → " << expected.width << " × " << expected.height;
    }
  }
  EXPECT_EQ(compared, 2 * 6 * kFilters);
}

// A part is resized as if it were a picture, with filters that reach beyond its edges, too.
TEST(Resize, PixelsOutsideOfThePartHaveNoInfluence) {
  Image picture, alone, resized, expected;
  picture.Reset(9, 8, 1);
  alone.Reset(5, 4, 1);
  std::ranges::fill(picture.pixels, uint8_t{255});
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 5; ++x) alone.row(y)[x] = picture.row(y + 2)[x + 3] = static_cast<uint8_t>(40 * (x ^ y) % 255);
  }
  for (int number = 0; number < kFilters; ++number) {
    Resampler resampler;
    resampler.Resize(picture, {.width = 9, .height = 8}, {3, 2, 5, 4}, *FindFilter(number), 7, 3, &resized);
    resampler.Resize(alone, {.width = 5, .height = 4}, {0, 0, 5, 4}, *FindFilter(number), 7, 3, &expected);
    EXPECT_EQ(resized.pixels, expected.pixels) << FilterName(*FindFilter(number));
  }
}

TEST(Resize, FiltersHaveNames) {
  for (int number = 0; number < kFilters; ++number)
    EXPECT_EQ(FindFilter(FilterName(*FindFilter(number))), FindFilter(number));
  EXPECT_EQ(FindFilter("bicubic"), Filter::kBicubic);
  EXPECT_FALSE(FindFilter("cubic").has_value());
  EXPECT_FALSE(FindFilter(kFilters).has_value());
  EXPECT_FALSE(FindFilter(-1).has_value());
}

}  // namespace
}  // namespace onnxtrain
