#include "frontend/data/bind/mask_encoding.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

// Samples of 4 × 4 pixels as decoded from files, or of an array.
std::shared_ptr<const Dataset> MakeMasks(const std::vector<std::vector<uint8_t>>& samples, bool picture) {
  class Masks : public Dataset {
   public:
    Masks(std::vector<std::vector<uint8_t>> samples, bool picture) : samples_(std::move(samples)) {
      columns_.push_back({.name = "mask", .sample = {DType::kUInt8, {4, 4}}, .picture = picture});
    }
    int64_t size() const override { return std::ssize(samples_); }
    const std::vector<Column>& columns() const override { return columns_; }
    absl::Status Read(int64_t i, int, const ReadPass&, std::span<std::byte> out) const override {
      std::ranges::copy(std::as_bytes(std::span(samples_[i])), out.begin());
      return absl::OkStatus();
    }
    std::string Describe(int64_t i) const override { return StrCat("sample ", i); }

   private:
    std::vector<std::vector<uint8_t>> samples_;
    std::vector<Column> columns_;
  };
  return std::make_shared<Masks>(samples, picture);
}

std::vector<uint8_t> Fill(std::initializer_list<uint8_t> values) {
  std::vector<uint8_t> pixels;
  while (pixels.size() < 16) pixels.insert(pixels.end(), values);
  pixels.resize(16);
  return pixels;
}

MaskEncoding Find(const std::vector<std::vector<uint8_t>>& samples, bool picture = true) {
  return *FindMaskEncoding(*MakeMasks(samples, picture), 0, false);
}

TEST(MaskEncoding, BlackAndWhite) {
  std::vector<std::vector<uint8_t>> samples(100, Fill({0}));
  EXPECT_EQ(Find(samples), MaskEncoding::kClasses) << "empty masks tell nothing";
  samples.push_back(Fill({0, 255}));
  EXPECT_EQ(Find(samples), MaskEncoding::kBlackAndWhite);
  EXPECT_EQ(Find(samples, false), MaskEncoding::kBlackAndWhite);
  samples.push_back(Fill({0, 255, 1}));
  EXPECT_EQ(Find(samples), MaskEncoding::kClasses) << "255 marks pixels of no class";
}

TEST(MaskEncoding, NumbersOfClassesAreNone) {
  EXPECT_EQ(Find({Fill({0, 1})}), MaskEncoding::kClasses);
  EXPECT_EQ(Find({Fill({0, 5, 15, 20, 255})}), MaskEncoding::kClasses);
  EXPECT_EQ(Find({Fill({1, 2, 3})}), MaskEncoding::kClasses);
}

TEST(MaskEncoding, GreysOfJpegAndOfSmoothEdges) {
  const std::vector<std::vector<uint8_t>> jpeg = {Fill({0, 1, 3, 0, 255, 254, 250, 253})};
  EXPECT_EQ(Find(jpeg), MaskEncoding::kGreys);
  EXPECT_EQ(Find(jpeg, false), MaskEncoding::kClasses) << "an array is no JPEG";
  EXPECT_EQ(Find({Fill({0, 0, 0, 0, 0, 128, 250, 255, 255, 255, 255, 255, 255, 0, 0, 0})}), MaskEncoding::kGreys);
  EXPECT_EQ(Find({Fill({0, 40, 90, 128, 250, 255})}), MaskEncoding::kClasses) << "a picture";
}

TEST(MaskEncoding, BecomesClasses) {
  const auto source = MakeMasks({Fill({0, 127, 128, 255}), Fill({0, 255})}, true);
  EXPECT_EQ(ColumnValues(*WithMaskClasses(source, {{0, MaskEncoding::kGreys}}), 0)[2], 1);
  const auto exact = WithMaskClasses(source, {{0, MaskEncoding::kBlackAndWhite}});
  HostTensor sample(exact->columns()[0].sample);
  EXPECT_EQ(Message(exact->Read(0, 0, sample.mutable_bytes())), "sample 0, column 'mask': 127 in a mask of 0 and 255");
  ASSERT_TRUE(exact->Read(1, 0, sample.mutable_bytes()).ok());
  EXPECT_EQ(sample.ToDoubles()[1], 1);
}

TEST(MaskEncoding, NumbersOfOtherTypes) {
  for (const DType dtype : {DType::kFloat32, DType::kInt64, DType::kInt32, DType::kFloat64}) {
    const auto find = [&](std::vector<double> values) {
      const auto data = InMemoryDataset("d", {"mask"}, {HostTensor::FromDoubles({dtype, {1, 2, 2}}, values)});
      return *FindMaskEncoding(**data, 0, false);
    };
    EXPECT_EQ(find({0, 255, 0, 0}), MaskEncoding::kBlackAndWhite) << ToString(dtype);
    EXPECT_EQ(find({0, 255, 1, 0}), MaskEncoding::kClasses);
    EXPECT_EQ(find({0, 1, 1, 0}), MaskEncoding::kClasses);
  }
}

TEST(MaskEncoding, Names) {
  for (const MaskEncoding ink : {MaskEncoding::kClasses, MaskEncoding::kBlackAndWhite, MaskEncoding::kGreys})
    EXPECT_EQ(ParseMaskEncoding(ToString(ink)).value(), ink);
  EXPECT_FALSE(ParseMaskEncoding("sepia").ok());
}

}  // namespace
}  // namespace onnxtrain
