#include "frontend/data/sources/rows.h"

#include <zlib.h>

#include <algorithm>

#include "tests/frontend/data/files.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

std::string Idx(int code, const std::vector<int>& extents, std::string_view elements) {
  std::string out{'\0', '\0', static_cast<char>(code), static_cast<char>(extents.size())};
  for (int e : extents) {
    for (int shift : {24, 16, 8, 0}) out += static_cast<char>(e >> shift);
  }
  return StrCat(out, elements);
}

std::string Gzip(const std::string& text, const TempDir& dir) {
  gzFile gz = gzopen((dir / "packed").c_str(), "wb");
  gzwrite(gz, text.data(), text.size());
  gzclose(gz);
  return ReadFile(dir / "packed");
}

const std::string kImages = Idx(8, {2, 2, 3}, "abcdefghijkl"), kLabels = Idx(8, {2}, std::string_view("\3\7", 2));

void ExpectMnist(const absl::StatusOr<std::shared_ptr<const Dataset>>& data) {
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 2);
  ASSERT_EQ((*data)->columns().size(), 2u);
  EXPECT_EQ((*data)->columns()[0].name, "image");
  EXPECT_EQ(ToString((*data)->columns()[0].sample), "u8[2,3]");
  EXPECT_TRUE((*data)->columns()[0].image);
  EXPECT_EQ((*data)->columns()[1].name, "label");
  EXPECT_EQ(ToString((*data)->columns()[1].sample), "u8[]");
  EXPECT_FALSE((*data)->columns()[1].image);
  EXPECT_EQ(ColumnValues(**data, 0)[7], 'h');
  EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{3, 7}));
}

TEST(Idx, AFileOfImagesFindsItsLabels) {
  for (const char* labels : {"some-labels-idx1-ubyte", "some-labels-idx1-ubyte.gz"}) {
    for (const char* images : {"some-images-idx3-ubyte", "some-images-idx3-ubyte.gz"}) {
      TempDir dir;
      dir.Write(labels, std::string(labels).ends_with(".gz") ? Gzip(kLabels, dir) : kLabels);
      ExpectMnist(
          OpenDataset(dir.Write(images, std::string(images).ends_with(".gz") ? Gzip(kImages, dir) : kImages), {}));
    }
  }
}

TEST(Idx, AloneAFileIsOneColumn) {
  TempDir dir;
  const auto images = OpenDataset(dir.Write("t-images-idx3-ubyte", kImages), {});
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ((*images)->columns().size(), 1u);
  const auto labels = OpenDataset(dir.Write("t-labels-idx1-ubyte", kLabels), {});
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_EQ((*labels)->columns()[0].name, "label");
}

TEST(Idx, AFolderServesBothSplits) {
  TempDir dir;
  dir.Write("train-images-idx3-ubyte.gz", Gzip(kImages, dir));
  dir.Write("train-labels-idx1-ubyte.gz", Gzip(kLabels, dir));
  dir.Write("t10k-images.idx3-ubyte", kImages);
  dir.Write("t10k-labels.idx1-ubyte", kLabels);
  ExpectMnist(OpenDataset(dir.path(), {}));
  ExpectMnist(OpenDataset(dir.path(), {.eval_split = true}));
  // A plain file is preferred to a gzip one of the same name.
  dir.Write("train-labels-idx1-ubyte", Idx(8, {2}, "xy"));
  const auto plain = OpenDataset(dir.path(), {});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(ColumnValues(**plain, 1)[0], 'x');
  dir.Write("train-labels-other", kLabels);
  EXPECT_NE(Message(OpenDataset(dir.path(), {}).status()).find("could be the train-labels file"), std::string::npos);
  std::filesystem::remove(dir / "t10k-labels.idx1-ubyte");
  EXPECT_NE(Message(OpenDataset(dir.path(), {.eval_split = true}).status()).find(dir.path() + ": no file t10k-labels"),
            std::string::npos);
}

TEST(Idx, EveryElementType) {
  TempDir dir;
  const struct {
    int code;
    DType dtype;
    std::string_view elements;  // 1 and 2
  } kCases[] = {{0x08, DType::kUInt8, {"\1\2", 2}},
                {0x09, DType::kInt8, {"\1\2", 2}},
                {0x0B, DType::kInt16, {"\0\1\0\2", 4}},
                {0x0C, DType::kInt32, {"\0\0\0\1\0\0\0\2", 8}},
                {0x0D, DType::kFloat32, {"\x3F\x80\0\0\x40\0\0\0", 8}},
                {0x0E, DType::kFloat64, {"\x3F\xF0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0", 16}}};
  for (const auto& c : kCases) {
    const auto read = ReadIdx(dir.Write("x", Idx(c.code, {2}, c.elements)), 0);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->dtype(), c.dtype);
    EXPECT_EQ(read->ToDoubles(), (std::vector<double>{1, 2}));
  }
}

TEST(Idx, BrokenFiles) {
  TempDir dir;
  const auto message = [&](const std::string& content) {
    return Message(ReadIdx(dir.Write("x", content), 0).status());
  };
  EXPECT_EQ(message(kImages.substr(0, kImages.size() - 1)), "unexpected end of file: 1 bytes are missing");
  EXPECT_EQ(message(kImages + "z"), "the file holds more than the u8[2,2,3] that its header declares");
  EXPECT_EQ(message("PNG and more of it"), "not an idx file (bad magic)");
  const std::string packed = Gzip(kImages, dir);
  for (size_t cut = 1; cut < packed.size(); ++cut) EXPECT_NE(message(packed.substr(0, cut)), "") << cut;
  std::string flipped = packed;
  flipped[flipped.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(message(flipped), "the gzip data is corrupt");
  // Decompression bombs.
  EXPECT_EQ(message(Idx(8, {0x7FFFFFFF, 0x100}, "")),
            "the header declares u8[2147483647,256], more than the file can hold");
  EXPECT_NE(message(Idx(8, {0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}, "")), "");
  EXPECT_EQ(Message(ReadIdx(dir.Write("x", Idx(8, {3 << 20}, std::string(3 << 20, 'x'))), 1 << 20).status()),
            "needs 3 MiB of memory, the limit is 1 MiB (an .npy is read from disk)");
}

TEST(Idx, LabelsMustBeAsManyAsImages) {
  TempDir dir;
  dir.Write("t-labels-idx1-ubyte", Idx(8, {3}, "123"));
  EXPECT_EQ(Message(OpenDataset(dir.Write("t-images-idx3-ubyte", kImages), {}).status()),
            dir / "t-images-idx3-ubyte" + ": 'image' has 2 samples, 'label' has 3");
  EXPECT_EQ(Message(OpenDataset(dir.Write("none-idx3-ubyte", Idx(8, {0, 2, 3}, "")), {}).status()),
            dir / "none-idx3-ubyte" + ": 'image' u8[0,2,3] holds no samples");
}

TEST(Idx, UnknownFilesAndPaths) {
  TempDir dir;
  EXPECT_NE(
      Message(OpenDataset(dir.Write("x.png", "\x89PNG....."), {}).status()).find("x.png: not a known kind of data"),
      std::string::npos);
  EXPECT_EQ(Message(OpenDataset("", {}).status()), "the path of the data is empty");
  EXPECT_NE(Message(OpenDataset(dir / "gone.csv", {}).status()).find("gone.csv: No such file"), std::string::npos);
  EXPECT_NE(Message(OpenDataset("/dev/zero", {}).status()).find("/dev/zero: not a regular file"), std::string::npos);
}

TEST(Idx, RealMnist) {
  SKIP_WITHOUT_SHARED("data/mnist_idx");
  for (bool eval : {false, true}) {
    const auto data = OpenDataset(SharedPath("data/mnist_idx"), {.eval_split = eval});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->size(), eval ? 10000 : 60000);
    EXPECT_EQ(ToString((*data)->columns()[0].sample), "u8[28,28]");
    const std::vector<double> labels = ColumnValues(**data, 1);
    EXPECT_EQ(labels[0], eval ? 7 : 5);
    EXPECT_EQ(*std::max_element(labels.begin(), labels.end()), 9);
  }
}

}  // namespace
}  // namespace onnxtrain
