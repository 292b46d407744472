// GCC 12 wrongly warns that members without a designated initializer are uninitialized in optimized-away temporaries.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "frontend/data/transform/convert.h"

#include <cmath>
#include <limits>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                          DType::kInt16,   DType::kInt32,   DType::kInt64,   DType::kUInt8,    DType::kUInt16,
                          DType::kUInt32,  DType::kUInt64,  DType::kBool};

absl::StatusOr<HostTensor> Convert(const HostTensor& from, DType to, int64_t stride = 1) {
  HostTensor out({to, {from.size() * stride}});
  const absl::Status status = ConvertValues(from.dtype(), from.bytes(), to, out.mutable_bytes().data(), stride);
  if (!status.ok()) return status;
  return out;
}

TEST(Convert, EveryTypeToEveryType) {
  for (DType from : kAll) {
    const double last = from == DType::kBool ? 1 : 100;
    const HostTensor x = HostTensor::FromDoubles({from, {3}}, std::vector<double>{0, 1, last});
    for (DType to : kAll) {
      for (int64_t stride : {1, 3}) {
        const auto y = Convert(x, to, stride);
        ASSERT_TRUE(y.ok()) << ToString(from) << " " << ToString(to) << y.status();
        EXPECT_EQ(y->At(0), 0);
        EXPECT_EQ(y->At(stride), 1);
        EXPECT_EQ(y->At(2 * stride), to == DType::kBool ? 1 : last) << ToString(from) << " " << ToString(to);
        if (stride == 3) {
          EXPECT_EQ(y->At(1), 0);
        }
      }
    }
  }
}

TEST(Convert, IntegersAreExact) {
  const int64_t big = (int64_t{1} << 53) + 1;
  EXPECT_EQ(Convert(HostTensor::FromInts({big}), DType::kInt64)->IntAt(0), big);
  EXPECT_EQ(Convert(HostTensor::FromInts({big}), DType::kUInt64)->IntAt(0), big);
  HostTensor most({DType::kUInt64, {1}});
  most.mutable_data<uint64_t>()[0] = std::numeric_limits<uint64_t>::max();
  EXPECT_FALSE(Convert(most, DType::kInt64).ok());
}

TEST(Convert, IntegersThatDoNotFitAreErrors) {
  const double inf = std::numeric_limits<double>::infinity();
  const struct {
    double value;
    DType to;
    bool ok;
  } kCases[] = {
      {127, DType::kInt8, true},      {128, DType::kInt8, false},      {-128, DType::kInt8, true},
      {-129, DType::kInt8, false},    {255, DType::kUInt8, true},      {256, DType::kUInt8, false},
      {-1, DType::kUInt8, false},     {2.5, DType::kInt32, false},     {std::nan(""), DType::kInt64, false},
      {inf, DType::kInt64, false},    {0x1p63, DType::kInt64, false},  {-0x1p63, DType::kInt64, true},
      {0x1p63, DType::kUInt64, true}, {0x1p64, DType::kUInt64, false}, {-0.0, DType::kUInt8, true},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Convert(HostTensor::Scalar(DType::kFloat64, c.value), c.to).ok(), c.ok) << c.value << ToString(c.to);
  }
  EXPECT_FALSE(Convert(HostTensor::FromInts({256}), DType::kUInt8).ok());
  EXPECT_FALSE(Convert(HostTensor::FromInts({-1}), DType::kUInt64).ok());
  EXPECT_EQ(Message(Convert(HostTensor::Scalar(DType::kFloat64, 2.5), DType::kInt64).status()),
            "2.5 is not an integer in range");
  // Floats accept every value, with the usual rounding.
  EXPECT_TRUE(std::isnan(Convert(HostTensor::Scalar(DType::kFloat64, std::nan("")), DType::kFloat32)->At(0)));
  EXPECT_TRUE(std::isinf(Convert(HostTensor::Scalar(DType::kFloat64, 1e300), DType::kFloat16)->At(0)));
}

std::shared_ptr<const Dataset> Images(Shape shape) {
  HostTensor x({DType::kUInt8, std::move(shape)});
  for (int64_t i = 0; i < x.size(); ++i) x.SetInt(i, i % 251);
  return *InMemoryDataset("mem", {"image"}, {x});
}

std::vector<double> Written(const Dataset& data, const FeedSpec& spec, int64_t i) {
  const auto writer = FeedWriter::Create(data, spec);
  EXPECT_TRUE(writer.ok()) << writer.status();
  HostTensor out(spec.sample);
  std::vector<std::byte> scratch;
  const absl::Status status = writer->Write(data, i, out.mutable_bytes(), &scratch);
  EXPECT_TRUE(status.ok()) << status;
  return out.ToDoubles();
}

// The larger samples take a table of the 256 results.
TEST(FeedWriter, NormalizesChannelsFirstAndLast) {
  for (const int64_t side : {2, 20}) {
    const int64_t n = side * side;
    const FeedSpec first{.feed = "x",
                         .columns = {0},
                         .sample = {DType::kFloat64, {3, side, side}},
                         .scale = 1 / 255.,
                         .mean = {.1, .2, .3},
                         .std = {.5, .6, .7},
                         .channel_axis = 0};
    const auto expected = [&](int64_t j, int64_t c) {
      return (static_cast<double>((3 * n + j) % 251) * (1 / 255.) - first.mean[c]) / first.std[c];
    };
    const std::vector<double> y = Written(*Images({2, 3, side, side}), first, 1);
    for (int64_t j = 0; j < 3 * n; ++j) EXPECT_EQ(y[j], expected(j, j / n));
    FeedSpec last = first;
    last.sample.shape = {side, side, 3};
    last.channel_axis = 2;
    const std::vector<double> z = Written(*Images({2, side, side, 3}), last, 1);
    for (int64_t j = 0; j < 3 * n; ++j) EXPECT_EQ(z[j], expected(j, j % 3));
  }
}

TEST(FeedWriter, OneMeanServesAllChannelsAndShapesOnlyNeedAsManyValues) {
  const FeedSpec spec{
      .feed = "x", .columns = {0}, .sample = {DType::kFloat32, {1, 28, 28}}, .scale = .5, .mean = {3}, .std = {2}};
  const std::vector<double> y = Written(*Images({1, 28, 28}), spec, 0);
  for (int j = 0; j < 784; ++j) EXPECT_EQ(y[j], ((j % 251) * .5 - 3) / 2);
}

TEST(FeedWriter, OnlyImagesAreNormalized) {
  const auto data =
      *InMemoryDataset("mem", {"x"}, {HostTensor::FromDoubles({DType::kFloat32, {1, 2}}, std::vector<double>{1, 2})});
  EXPECT_EQ(Written(*data, {.feed = "x", .columns = {0}, .sample = {DType::kFloat32, {2}}, .scale = 5, .mean = {1}}, 0),
            (std::vector<double>{1, 2}));
}

TEST(FeedWriter, ColumnsStandSideBySide) {
  const auto data = *InMemoryDataset(
      "mem", {"a", "b", "c"},
      {HostTensor::FromInts({1, 2}), HostTensor::FromDoubles({DType::kFloat64, {2}}, std::vector<double>{.5, 1.5}),
       HostTensor::FromInts({7, 8})});
  EXPECT_EQ(Written(*data, {.feed = "x", .columns = {2, 1, 0}, .sample = {DType::kFloat32, {3}}}, 1),
            (std::vector<double>{8, 1.5, 2}));
  const auto vectors = *InMemoryDataset("mem", {"a", "b"},
                                        {HostTensor::FromInts({DType::kInt64, {1, 2}}, std::vector<int64_t>{1, 2}),
                                         HostTensor::FromInts({DType::kInt64, {1, 2}}, std::vector<int64_t>{3, 4})});
  EXPECT_EQ(Written(*vectors, {.feed = "x", .columns = {0, 1}, .sample = {DType::kFloat32, {2, 2}}}, 0),
            (std::vector<double>{1, 3, 2, 4}));
}

TEST(FeedWriter, WhatDoesNotFit) {
  const auto images = Images({2, 3, 2, 2});
  const auto message = [&](FeedSpec spec) {
    spec.feed = "x";
    return Message(FeedWriter::Create(*images, spec).status());
  };
  const Type f32{DType::kFloat32, {3, 2, 2}};
  EXPECT_EQ(message({.sample = f32}), "input 'x': no column is assigned");
  EXPECT_EQ(message({.columns = {1}, .sample = f32}), "input 'x': there is no column 1");
  EXPECT_EQ(message({.columns = {0}, .sample = {DType::kFloat32, {1, 28, 28}}}),
            "input 'x': expected f32[1,28,28] = 784 values per sample, got 12 (column 'image' u8[3,2,2])");
  EXPECT_EQ(message({.columns = {0}, .sample = f32, .mean = {1, 2}}),
            "input 'x': mean has 2 values, but there are 3 channels");
  EXPECT_EQ(message({.columns = {0}, .sample = f32, .std = {1, 2, 0}}), "input 'x': a std of 0 is not positive");
  EXPECT_EQ(message({.columns = {0}, .sample = f32, .mean = {1, 2, 3}, .channel_axis = 3}),
            "input 'x': channel axis 3 is outside of f32[3,2,2]");
  EXPECT_EQ(message({.columns = {0}, .sample = {DType::kInt64, {12}}, .scale = .5}),
            "input 'x': images are normalized for float inputs only, this one is i64");
  const auto mixed =
      *InMemoryDataset("mem", {"a", "b"}, {HostTensor::FromInts({1}), HostTensor({DType::kFloat32, {1, 2}})});
  EXPECT_EQ(
      Message(FeedWriter::Create(*mixed, {.feed = "x", .columns = {0, 1}, .sample = {DType::kFloat32, {3}}}).status()),
      "input 'x': columns 'a' and 'b' differ in size");
}

TEST(FeedWriter, ABadValueNamesItsRowAndColumn) {
  const auto data =
      *InMemoryDataset("mem", {"y"}, {HostTensor::FromDoubles({DType::kFloat64, {2}}, std::vector<double>{1, 2.5})});
  const auto writer = FeedWriter::Create(*data, {.feed = "label", .columns = {0}, .sample = {DType::kInt64, {}}});
  ASSERT_TRUE(writer.ok());
  int64_t out;
  std::vector<std::byte> scratch;
  EXPECT_TRUE(writer->Write(*data, 0, std::as_writable_bytes(std::span(&out, 1)), &scratch).ok());
  EXPECT_EQ(Message(writer->Write(*data, 1, std::as_writable_bytes(std::span(&out, 1)), &scratch)),
            "mem: sample 1, column 'y': 2.5 is not an integer in range");
}

// What the second of two samples makes of a feed; "" where it is written.
std::string WriteError(HostTensor values, FeedSpec spec) {
  const auto data = *InMemoryDataset("data", {"x"}, {std::move(values)});
  spec.feed = "in";
  spec.columns = {0};
  const auto writer = FeedWriter::Create(*data, spec);
  EXPECT_TRUE(writer.ok()) << writer.status();
  std::vector<std::byte> out(spec.sample.bytes()), scratch;
  EXPECT_TRUE(writer->Write(*data, 0, out, &scratch).ok());
  return std::string(writer->Write(*data, 1, out, &scratch).message());
}

TEST(FeedWriter, NamesValuesThatAreNotFinite) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double x : {nan, inf, -inf, 1e300}) {
    const auto values = HostTensor::FromDoubles({DType::kFloat64, {2, 3}}, std::vector<double>{1, 2, 3, 4, x, 6});
    const std::string error = WriteError(values, {.sample = {DType::kFloat32, {3}}});
    EXPECT_EQ(error.find("data: sample 1, column 'x', element 1: "), 0) << error;
    EXPECT_NE(error.find("is not a finite f32"), std::string::npos) << error;
    EXPECT_EQ(WriteError(values, {.sample = {DType::kFloat64, {3}}}).empty(), x == 1e300);
  }
  const auto missing = HostTensor::FromDoubles({DType::kFloat32, {2}}, std::vector<double>{1, nan});
  EXPECT_EQ(WriteError(missing, {.sample = {DType::kFloat32, {}}, .allow_nan = true}), "");
}

TEST(FeedWriter, NamesValuesOutOfRange) {
  const auto ids = [](int64_t id) {
    return HostTensor::FromInts({DType::kInt64, {2, 2}}, std::vector<int64_t>{0, 9, 1, id});
  };
  const FeedSpec spec{.sample = {DType::kInt64, {2}}, .range = ValueRange{-10, 9, "the 10 rows"}};
  EXPECT_EQ(WriteError(ids(-10), spec), "");
  EXPECT_EQ(WriteError(ids(10), spec), "data: sample 1, column 'x', element 1: 10 is outside of the 10 rows");
  EXPECT_EQ(WriteError(ids(-11), spec), "data: sample 1, column 'x', element 1: -11 is outside of the 10 rows");
}

}  // namespace
}  // namespace onnxtrain
