#include "frontend/data/sources/numpy.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <zip.h>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

const char kPython[] = "/usr/bin/python3";

NamedArrays Sample() {
  return {{"x", HostTensor::FromDoubles({DType::kFloat32, {3, 2}}, std::vector<double>{1, 2, 3, 4, 5, 6})},
          {"y", HostTensor::FromInts({7, 8, 9})}};
}

void ExpectMessage(const absl::Status& status, const std::string& text) {
  EXPECT_FALSE(status.ok());
  EXPECT_NE(Message(status).find(text), std::string::npos) << status;
}

// Makes a zip with one entry of the given content.
void WriteZip(const std::string& path, const std::string& name, const std::string& content, int method = ZIP_CM_STORE) {
  zip_t* zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  const zip_int64_t at = zip_file_add(zip, name.c_str(), zip_source_buffer(zip, content.data(), content.size(), 0), 0);
  zip_set_file_compression(zip, at, method, 0);
  ASSERT_EQ(zip_close(zip), 0);
}

TEST(Npz, WritesAndReads) {
  TempDir dir;
  for (bool compressed : {false, true}) {
    ASSERT_TRUE(WriteNpz(dir / "a.npz", Sample(), compressed).ok());
    const auto read = ReadNpz(dir / "a.npz");
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), 2u);
    for (int i : {0, 1}) {
      EXPECT_EQ((*read)[i].first, Sample()[i].first);
      EXPECT_TRUE((*read)[i].second.SameBytes(Sample()[i].second));
    }
  }
}

TEST(Npz, NumpyReadsOursAndWeReadNumpys) {
  TempDir dir;
  ASSERT_TRUE(WriteNpz(dir / "ours.npz", Sample(), true).ok());
  const std::string script = dir.Write("t.py", R"(
import numpy as np, sys
ours = np.load(sys.argv[1] + '/ours.npz')
assert ours['x'].dtype == np.float32 and ours['x'].tolist() == [[1, 2], [3, 4], [5, 6]]
assert ours['y'].tolist() == [7, 8, 9]
x = np.arange(24).reshape(2, 3, 4)
arrays = {d.replace('>', 'b').replace('<', 'l') + o: np.array(x, dtype=d, order=o.upper())
          for d in ['<f2', '<f4', '<f8', 'i1', '<i2', '<i4', '<i8', 'u1', '<u2', '<u4', '<u8', '>f4', '>i8']
          for o in 'cf'}
arrays['?'] = x % 2 == 1
np.savez(sys.argv[1] + '/stored.npz', **arrays)
np.savez_compressed(sys.argv[1] + '/deflated.npz', **arrays)
)");
  ASSERT_EQ(std::system(StrCat(kPython, " ", script, " ", dir.path()).c_str()), 0) << "python3-numpy is needed";
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const auto data = OpenDataset(dir / name, {});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->size(), 2);
    ASSERT_EQ((*data)->columns().size(), 27u);
    for (int c = 0; c < 27; ++c) {
      EXPECT_EQ((*data)->columns()[c].sample.shape, (Shape{3, 4}));
      const std::vector<double> values = ColumnValues(**data, c);
      for (int i = 0; i < 24; ++i) EXPECT_EQ(values[i], c == 26 ? i % 2 : i) << (*data)->columns()[c].name;
    }
  }
}

// Arrays of texts as NumPy writes them: `label` and `city` of both widths of characters, numbers, objects, grids.
class NpzTexts : public testing::Test {
 protected:
  NpzTexts() {
    const std::string script = dir_.Write("t.py", R"(
import numpy as np, os, sys
x = np.zeros((4, 2), np.float32)
label = np.array(['zwei', 'éins', '鳥 ', 'zwei'])
city = np.array([b'Rome', b'', b'Oslo', b'Rome'])
def save(name, **more): np.savez(f'{sys.argv[1]}/{name}.npz', x=x, **more)
save('texts', label=label, city=city, year=np.array(['1990', '2001', '7', '-3']))
save('swapped', label=label.astype('>U9').reshape(4, 1))
np.savez_compressed(sys.argv[1] + '/packed.npz', x=x, label=label)
save('objects', label=label.astype(object))
save('grid', label=np.array([['a', 'b']] * 4))
save('binary', label=np.array([b'\xff\xfe'] * 4))
np.savez(sys.argv[1] + '/large.npz', x=np.zeros((4, 5 << 20), np.float32), label=label, city=city)
np.save(sys.argv[1] + '/alone.npy', label)
os.mkdir(sys.argv[1] + '/samples')
for i in range(4): save(f'samples/{i}', label=label[i], city=city[i], n=i)
)");
    EXPECT_EQ(std::system(StrCat(kPython, " ", script, " ", dir_.path()).c_str()), 0) << "python3-numpy is needed";
  }
  std::shared_ptr<const Dataset> Open(const std::string& name, const DatasetOptions& options = {}) const {
    auto data = OpenDataset(dir_ / name, options);
    EXPECT_TRUE(data.ok()) << data.status();
    return *data;
  }
  void Refuses(const std::string& name, const std::string& text) const {
    ExpectMessage(OpenDataset(dir_ / name, {}).status(), dir_ / name + ": " + text);
  }
  TempDir dir_;
};

TEST_F(NpzTexts, LabelsAreClasses) {
  for (const char* name : {"texts.npz", "swapped.npz", "packed.npz", "large.npz"}) {
    const auto data = Open(name);
    EXPECT_EQ(data->columns()[1].classes, (std::vector<std::string>{"zwei", "éins", "鳥 "})) << name;
    EXPECT_EQ(ColumnValues(*data, 1), (std::vector<double>{0, 1, 2, 0})) << name;
  }
  const auto named = Open("texts.npz", {.label = {"label"}, .class_names = {"鳥 ", "zwei", "éins"}});
  EXPECT_EQ(ColumnValues(*named, 1), (std::vector<double>{1, 2, 0, 1}));
  ExpectMessage(OpenDataset(dir_ / "texts.npz", {.label = {"label"}, .class_names = {"zwei", "éins"}}).status(),
                "sample 2, column 'label': '鳥 ' is not among the 2 classes");
}

TEST_F(NpzTexts, OthersAreNumbersCategoriesOrText) {
  const auto plain = Open("texts.npz");
  EXPECT_THAT(plain->columns()[2].problem, testing::HasSubstr("texts.npz: sample 0, column 'city': 'Rome' is not"));
  EXPECT_EQ(ColumnValues(*plain, 3), (std::vector<double>{1990, 2001, 7, -3}));
  const auto encoded = Open("texts.npz", {.categories = {.names = {"city"}}, .missing = {.all = true}});
  EXPECT_EQ(encoded->columns()[2].classes, (std::vector<std::string>{"Oslo", "Rome"}));
  EXPECT_EQ(ColumnValues(*encoded, 2), (std::vector<double>{1, -1, 0, 1}));
  const auto text = Open("texts.npz", {.text = {.names = {"city"}}});
  EXPECT_EQ(*text->ReadText(2, 2), "Oslo");
}

TEST_F(NpzTexts, AFileForEachSample) {
  const auto data = Open("samples", {.text = {.names = {"city"}}});
  EXPECT_EQ(data->size(), 4);
  std::map<std::string, int> places;
  for (const Column& column : data->columns()) places.emplace(column.name, places.size());
  EXPECT_EQ(ColumnValues(*data, places["label"]), (std::vector<double>{0, 1, 2, 0}));
  EXPECT_EQ(ColumnValues(*data, places["n"]), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(*data->ReadText(2, places["city"]), "Oslo");
  std::filesystem::remove(dir_ / "samples/2.npz");
  ASSERT_TRUE(WriteNpz(dir_ / "samples/2.npz", Sample()).ok());
  ExpectMessage(OpenDataset(dir_ / "samples", {}).status(), "samples/2.npz: there is no array 'city'");
}

TEST_F(NpzTexts, WhatIsNoColumnIsRefused) {
  Refuses("objects.npz", "array 'label': Python objects (pickles) are not read");
  Refuses("grid.npz", "array 'label': has more than one text for a sample");
  Refuses("binary.npz", "array 'label': text 0 is not Unicode");
  ExpectMessage(ReadNpz(dir_ / "texts.npz").status(), "array 'label' holds texts where numbers are needed");
}

TEST(Npz, ArraysOfADatasetHaveOneLength) {
  TempDir dir;
  NamedArrays arrays = Sample();
  arrays.emplace_back("z", HostTensor({DType::kFloat32, {4}}));
  ASSERT_TRUE(WriteNpz(dir / "a.npz", arrays).ok());
  EXPECT_EQ(Message(OpenDataset(dir / "a.npz", {}).status()), dir / "a.npz" + ": 'x' has 3 samples, 'z' has 4");
  arrays = {{"x", HostTensor({DType::kFloat32, {0, 4}})}};
  ASSERT_TRUE(WriteNpz(dir / "a.npz", arrays).ok());
  EXPECT_EQ(Message(OpenDataset(dir / "a.npz", {}).status()), dir / "a.npz" + ": 'x' f32[0,4] holds no samples");
}

TEST(Npz, PartsForTrainingAndEvaluation) {
  const auto column = [](int64_t n) { return HostTensor({DType::kFloat32, {n, 2}}); };
  const struct {
    std::vector<std::pair<std::string, int64_t>> arrays;
    std::vector<std::string> columns;
    int64_t train, eval;  // samples; eval 0: there are no parts
  } kCases[] = {
      {{{"x_test", 3}, {"x_train", 9}, {"y_test", 3}, {"y_train", 9}}, {"x", "y"}, 9, 3},
      {{{"X_train", 9}, {"Y_train", 9}, {"X_valid", 2}, {"Y_valid", 2}, {"X_test", 3}, {"Y_test", 3}},
       {"X", "Y"},
       9,
       2},
      {{{"train_images", 9}, {"val_images", 2}, {"test_images", 4}}, {"images"}, 9, 2},
      {{{"x_train", 9}, {"y_train", 9}}, {"x_train", "y_train"}, 9, 0},
      {{{"x_train", 9}, {"y_train", 9}, {"x_test", 9}}, {"x_train", "y_train", "x_test"}, 9, 0},
      {{{"x_train", 9}, {"x_test", 9}, {"z", 9}}, {"x_train", "x_test", "z"}, 9, 0},
      {{{"train", 9}, {"test", 9}}, {"train", "test"}, 9, 0},
  };
  TempDir dir;
  for (const auto& c : kCases) {
    NamedArrays arrays;
    for (const auto& [name, samples] : c.arrays) arrays.emplace_back(name, column(samples));
    ASSERT_TRUE(WriteNpz(dir / "a.npz", arrays).ok());
    EXPECT_EQ(HasEvalArrays(dir / "a.npz"), c.eval > 0);
    for (const bool eval : {false, true}) {
      const auto data = OpenDataset(dir / "a.npz", {.eval_split = eval});
      ASSERT_TRUE(data.ok()) << c.arrays[0].first << data.status();
      EXPECT_EQ((*data)->size(), eval && c.eval > 0 ? c.eval : c.train);
      std::vector<std::string> names;
      for (const Column& found : (*data)->columns()) names.push_back(found.name);
      EXPECT_EQ(names, c.columns);
    }
  }
  // Stored arrays of a large archive stay in the file.
  const int64_t n = int64_t{9} << 20;
  ASSERT_TRUE(WriteNpz(dir / "large.npz", {{"x_train", column(n)}, {"x_test", column(5)}}).ok());
  EXPECT_EQ((*OpenDataset(dir / "large.npz", {}))->size(), n);
  EXPECT_EQ((*OpenDataset(dir / "large.npz", {.eval_split = true}))->size(), 5);
}

TEST(Npz, BrokenArchives) {
  TempDir dir;
  ExpectMessage(OpenDataset(dir.Write("a.npz", ""), {}).status(), "a.npz: the file is empty");
  ExpectMessage(OpenDataset(dir.Write("b.npz", "not a zip at all"), {}).status(), "b.npz: not a readable zip archive");
  ExpectMessage(OpenDataset(dir / "c.npz", {}).status(), "c.npz: No such file");
  WriteZip(dir / "d.npz", "readme.txt", "hello");
  ExpectMessage(OpenDataset(dir / "d.npz", {}).status(), "d.npz: 'readme.txt' is no .npy array");
  WriteZip(dir / "e.npz", "x.npy", "hello");
  ExpectMessage(OpenDataset(dir / "e.npz", {}).status(), "e.npz: array 'x': unexpected end of file");
  mkfifo((dir / "f.npz").c_str(), 0600);
  ExpectMessage(OpenDataset(dir / "f.npz", {}).status(), "f.npz: not a regular file");
}

// A truncated file or a flipped bit gives an error or the true arrays, never others.
TEST(Npz, EveryTruncationAndBitFlipIsNoticed) {
  TempDir dir;
  for (bool compressed : {false, true}) {
    ASSERT_TRUE(WriteNpz(dir / "a.npz", Sample(), compressed).ok());
    const std::string good = ReadFile(dir / "a.npz");
    for (size_t cut = 0; cut < good.size(); ++cut) {
      EXPECT_FALSE(ReadNpz(dir.Write("cut.npz", good.substr(0, cut))).ok()) << cut;
    }
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] ^= 1 << at % 8;
      const auto read = ReadNpz(dir.Write("flipped.npz", bad));
      if (!read.ok()) continue;  // a flip in a time stamp is harmless
      ASSERT_EQ(read->size(), 2u);
      for (int i : {0, 1}) EXPECT_TRUE((*read)[i].second.SameBytes(Sample()[i].second)) << at;
    }
  }
}

TEST(Npz, BombsAreRefused) {
  TempDir dir;
  // A real bomb: 64 MiB of zeros in about 64 KiB, above the given limit.
  ASSERT_TRUE(WriteNpz(dir / "a.npz", {{"x", HostTensor({DType::kUInt8, {64 << 20}})}}, true).ok());
  EXPECT_LT(std::filesystem::file_size(dir / "a.npz"), 100u << 10);
  ASSERT_TRUE(ReadNpz(dir / "a.npz").ok());
  ExpectMessage(ReadNpz(dir / "a.npz", 32 << 20).status(),
                "a.npz: array 'x': needs 65 MiB of memory, the limit is 32 MiB");
  // The limit applies to the sum of many small arrays.
  NamedArrays many;
  for (int i = 0; i < 8; ++i) many.emplace_back(StrCat("x", i), HostTensor({DType::kUInt8, {1 << 20}}));
  ASSERT_TRUE(WriteNpz(dir / "b.npz", many, true).ok());
  ExpectMessage(ReadNpz(dir / "b.npz", 4 << 20).status(), "array 'x3': needs 5 MiB of memory, the limit is 4 MiB");
  // A directory that declares more than deflate can pack: the size field of the central record is set to 2 GiB.
  std::string lie = ReadFile(dir / "a.npz");
  const size_t central = lie.rfind("PK\1\2");
  ASSERT_NE(central, std::string::npos);
  lie.replace(central + 24, 4, std::string_view("\0\0\0\x80", 4));
  ExpectMessage(ReadNpz(dir.Write("c.npz", lie)).status(), "c.npz: array 'x': corrupt: 2147483648 bytes are declared");
}

TEST(Npz, TwoArraysOfOneName) {
  TempDir dir;
  ASSERT_TRUE(WriteNpz(dir / "a.npz", {{"x", HostTensor::FromInts({1})}, {"z", HostTensor::FromInts({2})}}).ok());
  std::string bytes = ReadFile(dir / "a.npz");
  for (size_t at = 0; (at = bytes.find("z.npy", at)) != std::string::npos;) bytes[at] = 'x';
  ExpectMessage(ReadNpz(dir.Write("b.npz", bytes)).status(), "b.npz: array 'x': the name occurs twice");
}

}  // namespace
}  // namespace onnxtrain
