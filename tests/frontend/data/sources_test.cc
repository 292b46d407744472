// Formats that have no test file of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "frontend/data/bind/labels.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/data/sources/source.h"
#include "tests/frontend/data/files.h"
#include "tests/media_files.h"

namespace onnxtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Zstd(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string OpenError(const std::string& path, const DatasetOptions& options = {}) {
  return Message(OpenDataset(path, options).status());
}

TEST(Zstandard, PacksTextAndArrays) {
  const TempDir dir;
  std::string text = "a,b\n";
  for (int i = 0; i < 100000; ++i) text += StrCat(i, ",", i % 3, "\n");
  const auto table = *OpenDataset(dir.Write("t.csv.zst", Zstd(text)), {});
  EXPECT_EQ(table->size(), 100000);
  EXPECT_EQ(ColumnValues(*table, 0)[99999], 99999);
  const auto two = *OpenDataset(dir.Write("two.jsonl.zst", Zstd("{\"a\":1}\n") + Zstd("{\"a\":2}\n")), {});
  EXPECT_THAT(ColumnValues(*two, 0), ElementsAre(1, 2));
  const std::string array = *NpyPreamble({DType::kUInt8, {3}}) + "abc";
  const auto packed = *OpenDataset(dir.Write("x.npy.zst", Zstd(array)), {});
  EXPECT_EQ(packed->columns()[0].name, "x");
  EXPECT_THAT(ColumnValues(*packed, 0), ElementsAre('a', 'b', 'c'));
}

TEST(Zstandard, BadFiles) {
  const TempDir dir;
  const std::string packed = Zstd("a,b\n1,2\n3,4\n");
  EXPECT_THAT(OpenError(dir.Write("cut.csv.zst", packed.substr(0, packed.size() - 3))), HasSubstr("truncated"));
  std::string flipped = packed;
  flipped[6] ^= 0x55;
  EXPECT_THAT(OpenError(dir.Write("bad.csv.zst", flipped)), HasSubstr("bad.csv.zst: "));
  EXPECT_THAT(OpenError(dir.Write("more.npy.zst", Zstd(*NpyPreamble({DType::kUInt8, {3}}) + "abcd"))),
              HasSubstr("there is more than the"));
  const std::string huge = *NpyPreamble({DType::kUInt8, {int64_t{1} << 40}});
  EXPECT_THAT(OpenError(dir.Write("huge.npy.zst", Zstd(huge))), HasSubstr("more than the file can hold"));
}

TEST(JsonLines, ColumnsOfNumbersNamesAndArrays) {
  const TempDir dir;
  const auto data = *OpenDataset(dir.Write("t.jsonl",
                                           "\xEF\xBB\xBF{\"n\": 1, \"v\": [[1, 2], [3, 4]], \"y\": \"dog\"}\r\n"
                                           "\n"
                                           "{\"y\": \"cat\", \"v\": [[5, 6], [7, 8.5]], \"n\": 2.5}\n"
                                           "{\"n\": true, \"v\": [[0, 0], [0, 0]], \"y\": \"dog\"}"),
                                 {});
  ASSERT_EQ(data->size(), 3);
  EXPECT_EQ(data->columns()[1].sample, (Type{DType::kFloat64, {2, 2}}));
  EXPECT_THAT(ColumnValues(*data, 0), ElementsAre(1, 2.5, 1));
  EXPECT_THAT(ColumnValues(*data, 1), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8.5, 0, 0, 0, 0));
  EXPECT_THAT(data->columns()[2].classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(ColumnValues(*data, 2), ElementsAre(1, 0, 1));
  EXPECT_THAT(data->Describe(1), HasSubstr("t.jsonl: row 3"));
}

TEST(JsonLines, WholeNumbersStayWhole) {
  const TempDir dir;
  const auto data = *OpenDataset(dir.Write("t.ndjson", "{\"v\": [1, 2], \"y\": 9007199254740993}\n"), {});
  EXPECT_EQ(data->columns()[0].sample, (Type{DType::kInt64, {2}}));
  int64_t y = 0;
  ASSERT_TRUE(data->Read(0, 1, std::as_writable_bytes(std::span(&y, 1))).ok());
  EXPECT_EQ(y, 9007199254740993);
}

TEST(JsonLines, MissingValuesAndLateKeys) {
  const TempDir dir;
  const std::string path = dir.Write("t.jsonl",
                                     "{\"a\": null, \"y\": 0}\n"
                                     "{\"a\": 3, \"b\": [1], \"y\": 1}\n"
                                     "{\"b\": [2], \"y\": 1}\n");
  const auto data = *OpenDataset(path, {.label = {"y"}});
  EXPECT_EQ(data->columns()[0].problem, path + ": row 1, column 'a': missing value");
  EXPECT_EQ(data->columns()[2].problem, path + ": row 1, column 'b': missing value");
  const auto filled = *OpenDataset(path, {.label = {"y"}, .missing = {.all = true}});
  EXPECT_TRUE(filled->columns()[0].problem.empty());
  const auto skipping = *OpenDataset(path, {.label = {"y"}, .skip_bad = true});
  double b = 0;
  EXPECT_FALSE(skipping->Read(0, 2, std::as_writable_bytes(std::span(&b, 1))).ok());
  EXPECT_TRUE(skipping->Read(2, 2, std::as_writable_bytes(std::span(&b, 1))).ok());
}

TEST(JsonLines, TextColumns) {
  const TempDir dir;
  const auto data = *OpenDataset(dir.Write("t.jsonl", "{\"text\": \"a \\u00e9\", \"y\": 0}\n{\"text\": 7, \"y\": 1}\n"),
                                 {.text = {.names = {"text"}}});
  EXPECT_EQ(*data->ReadText(0, 0), "a \u00e9");
  EXPECT_EQ(*data->ReadText(1, 0), "7");
}

TEST(JsonLines, BadLines) {
  const TempDir dir;
  const auto error = [&](std::string_view text, const DatasetOptions& options = {}) {
    return OpenError(dir.Write("t.jsonl", text), options);
  };
  EXPECT_THAT(error("{\"a\":1}\n{\"a\":"), HasSubstr("t.jsonl: row 2: not a JSON object"));
  EXPECT_THAT(error("[1]\n"), HasSubstr("the array must hold objects"));
  EXPECT_THAT(error("\n\n"), HasSubstr("there are no lines"));
  EXPECT_THAT(error("{\"a\":1}\n", {.label = {"b"}}), HasSubstr("no line has the key 'b'"));
  EXPECT_THAT(error("{\"a\":1,\"y\":\"x\"}\n", {.class_names = {"u"}}), HasSubstr("not among the 1 classes"));
  const auto problem = [&](std::string_view text) {
    return (*OpenDataset(dir.Write("t.jsonl", text), {.label = {"y"}}))->columns()[0].problem;
  };
  EXPECT_THAT(problem("{\"v\":[1,2],\"y\":0}\n{\"v\":[1],\"y\":0}\n"), HasSubstr("row 2, column 'v': its shape [1]"));
  EXPECT_THAT(problem("{\"v\":[1,\"x\"],\"y\":0}\n"), HasSubstr("an array holds string"));
  EXPECT_THAT(problem("{\"v\":{},\"y\":0}\n"), HasSubstr("an object without keys is no value"));
  EXPECT_THAT(problem("{\"v\":1,\"y\":0}\n{\"v\":{},\"y\":0}\n"), HasSubstr("object where others have a single value"));
  EXPECT_THAT(error("{\"v\":" + std::string(100000, '[') + std::string(100000, ']') + "}\n"), HasSubstr("64 deep"));
  EXPECT_EQ(error("{\"v\":\"" + std::string(100, '[') + "\\\"[\",\"y\":0}\n", {.label = {"y"}}), "");
  const auto first_refused =
      *OpenDataset(dir.Write("t.jsonl", "{\"v\":[[1],[1,2]],\"y\":0}\n{\"v\":[[1],[2]],\"y\":0}\n"),
                   {.label = {"y"}, .skip_bad = true});
  EXPECT_EQ(first_refused->columns()[0].sample.shape, (Shape{2, 1}));
  const auto skipped =
      *OpenDataset(dir.Write("t.jsonl", "{\"a\":1}\nnonsense\n{\"a\":2,\"late\":3}\n"), {.skip_bad = true});
  EXPECT_EQ(skipped->size(), 3);
  double a = 0;
  EXPECT_THAT(Message(skipped->Read(1, 0, std::as_writable_bytes(std::span(&a, 1)))), HasSubstr("row 2: not a JSON"));
}

// Only the first array of each level is long: a tensor of that shape takes 2^60 numbers.
TEST(JsonLines, ArraysOfOtherLengthsTakeNoMemory) {
  const TempDir dir;
  std::string ones = "[1", nested;
  for (int i = 1; i < 1 << 12; ++i) ones += ",1";
  ones += "]";
  for (int level = 0; level < 5; ++level)
    nested = level == 0 ? ones : StrCat("[", nested, std::string_view(ones).substr(2));
  const auto data = *OpenDataset(dir.Write("t.jsonl", StrCat("{\"v\":", nested, ",\"y\":0}\n")), {.label = {"y"}});
  EXPECT_THAT(data->columns()[0].problem, HasSubstr("row 1, column 'v': arrays nested in it are of different lengths"));
}

TEST(Safetensors, IsADataSet) {
  const TempDir dir;
  const std::vector<NamedType> types = {{"x", {DType::kFloat32, {2, 3}}}, {"y", {DType::kInt64, {2}}}};
  const std::string header = *SafetensorsHeader(types);
  std::string bytes(2 * 3 * 4 + 2 * 8, '\0');
  bytes[24] = 7;
  const auto data = *OpenDataset(dir.Write("d.safetensors", header + bytes), {});
  EXPECT_THAT(ColumnValues(*data, 1), ElementsAre(7, 0));
  EXPECT_THAT(OpenError(dir.Write("cut.safetensors", header)), HasSubstr("cut.safetensors: "));
}

// Arrays of more than 64 MiB stay in their file.
class LargeArrays : public ::testing::TestWithParam<const char*> {};

TEST_P(LargeArrays, AreReadFromTheFile) {
  const TempDir dir;
  const std::string path = dir / GetParam();
  HostTensor x({DType::kUInt8, {70, 1 << 20}}), y({DType::kInt16, {70}});
  for (int64_t i = 0; i < 70; ++i) {
    x.mutable_bytes()[i << 20] = static_cast<std::byte>(i);
    y.SetInt(i, 100 + i);
  }
  if (path.ends_with(".npz")) {
    ASSERT_TRUE(WriteNpz(path, {{"x", x}, {"y", y}}).ok());
  } else {
    std::string bytes = *SafetensorsHeader({{"x", x.type()}, {"y", y.type()}});
    for (const HostTensor* t : {&x, &y})
      bytes.append(reinterpret_cast<const char*>(t->bytes().data()), t->bytes().size());
    dir.Write(GetParam(), bytes);
  }
  const auto opened = OpenDataset(path, {.max_bytes = 1 << 20});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Dataset& data = **opened;
  EXPECT_EQ(data.memory_bytes(), 0);
  EXPECT_EQ(ColumnValues(data, 1)[69], 169);
  HostTensor sample(data.columns()[0].sample);
  ASSERT_TRUE(data.Read(69, 0, sample.mutable_bytes()).ok());
  EXPECT_EQ(sample.IntAt(0), 69);
  std::filesystem::resize_file(path, 1 << 20);
  EXPECT_THAT(Message(data.Read(69, 0, sample.mutable_bytes())), HasSubstr("sample 69: the file has become shorter"));
}
INSTANTIATE_TEST_SUITE_P(Formats, LargeArrays, ::testing::Values("a.npz", "a.safetensors"));

TEST(Pipe, TellsWhatItHoldsByItsFirstBytes) {
  const auto json = *OpenBytes("pipe", "\n{\"x\": [1, 2], \"y\": 1}\n", {});
  EXPECT_THAT(ColumnValues(*json, 0), ElementsAre(1, 2));
  EXPECT_EQ(json->Describe(0), "pipe: row 2");
  const auto table = *OpenBytes("pipe", "a,b\n1,2\n", {});
  EXPECT_EQ(table->columns()[1].name, "b");
  const std::string x = *NpyPreamble({DType::kUInt8, {2, 2}}) + "abcd", y = *NpyPreamble({DType::kUInt8, {2}}) + "\1\2";
  const auto arrays = *OpenBytes("pipe", x + y, {});
  EXPECT_EQ(arrays->columns()[1].name, "1");
  EXPECT_THAT(ColumnValues(*arrays, 0), ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(ColumnValues(*arrays, 1), ElementsAre(1, 2));
  EXPECT_THAT(Message(OpenBytes("pipe", x + y.substr(0, y.size() - 1), {}).status()),
              HasSubstr("pipe: array 1: the header declares u8[2], but 1 bytes are missing"));
  EXPECT_THAT(Message(OpenBytes("pipe", x + x.substr(0, 9), {}).status()), HasSubstr("pipe: array 1: "));
  EXPECT_EQ(Message(OpenBytes("pipe", " \n", {}).status()), "pipe: there are no samples");
  EXPECT_EQ(FindSource("-")->source->name, "stdin");
}

TEST(AudioFolder, AFolderPerClass) {
  const TempDir dir;
  for (const char* folder : {"dog", "cat", "empty"}) std::filesystem::create_directory(dir / folder);
  dir.Write("dog/1.wav", Wav(8000, 1, {16384, -32768}));
  dir.Write("cat/a.WAV", Wav(8000, 1, {0, 8192}));
  dir.Write("cat/notes.txt", "x");
  const auto data = *OpenDataset(dir.path(), {});
  EXPECT_THAT(ColumnValues(*data, 0), ElementsAre(0, 0.25, 0.5, -1));
  EXPECT_THAT(data->columns()[1].classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(ColumnValues(*data, 1), ElementsAre(0, 1));
  EXPECT_EQ(data->Describe(1), dir / "dog/1.wav");
  EXPECT_THAT(ColumnValues(**OpenDataset(dir.path(), {.folder_classes = {"dog", "bird", "cat"}}), 1),
              ElementsAre(2, 0));
  EXPECT_THAT(OpenError(dir.path(), {.folder_classes = {"dog"}}), HasSubstr("'cat' is not among the 1 classes"));
  dir.Write("top.wav", Wav(8000, 1, {1}));
  EXPECT_THAT(OpenError("audio_folder:" + dir.path()), HasSubstr("has sound files beside the folders"));
}

TEST(AudioFolder, ChannelsAndBadFiles) {
  const TempDir dir;
  dir.Write("1.wav", Wav(8000, 2, {16384, 0, -16384, 8192}));
  const auto read = [&](const std::string& second) {
    dir.Write("2.wav", second);
    const auto data = *OpenDataset(dir.path(), {});
    HostTensor audio(data->columns()[0].sample);
    return Message(data->Read(1, 0, audio.mutable_bytes()));
  };
  EXPECT_EQ(read(Wav(8000, 2, {1, 2, 3, 4})), "");
  const auto data = *OpenDataset(dir.path(), {});
  EXPECT_EQ(data->columns()[0].sample, (Type{DType::kFloat32, {2, 2}}));
  HostTensor audio(data->columns()[0].sample);
  ASSERT_TRUE(data->Read(0, 0, audio.mutable_bytes()).ok());
  EXPECT_THAT(audio.ToDoubles(), ElementsAre(0.5, -0.5, 0, 0.25));
  EXPECT_THAT(read(Wav(16000, 2, {1, 2, 3, 4})), HasSubstr("2.wav: sample rate 16000, but 8000 in 1.wav"));
  EXPECT_THAT(read(Wav(8000, 1, {1, 2})), HasSubstr("2.wav: channels: 1, but 2"));
  EXPECT_THAT(read(Wav(8000, 2, {1, 2})), HasSubstr("2.wav: frames: 1, but 2"));
  EXPECT_THAT(read("nonsense"), HasSubstr("2.wav: "));
  EXPECT_THAT(read(""), HasSubstr("2.wav: the file is empty"));
  dir.Write("1.wav", "RIFF");
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("1.wav: "));
}

TEST(AudioFolder, NamesBrokenFilesOfEachFormat) {
  for (const char* suffix : {"wav", "flac", "ogg", "opus", "mp3", "aiff"}) {
    for (const char* bytes : {"no sound", "ID3\x04 and no frame", "\xff\xfb\x90\x64 cut"}) {
      const TempDir dir;
      dir.Write(StrCat("1.", suffix), bytes);
      EXPECT_THAT(OpenError(dir.path()), HasSubstr(StrCat("1.", suffix, ": no readable sound of its format (")))
          << bytes;
      EXPECT_THAT(OpenError(dir.path()), Not(HasSubstr("exist")));
    }
  }
  const TempDir dir;
  dir.Write("named.mp3", Wav(8000, 1, {16384, 0}));
  EXPECT_EQ((*OpenDataset(dir.path(), {}))->columns()[0].sample_rate, 8000) << "sounds are known by their content";
}

DatasetOptions WithAudio(AudioOptions audio) {
  DatasetOptions options;
  options.audio = audio;
  return options;
}

TEST(AudioFolder, CutsPadsAndAverages) {
  const TempDir dir;
  dir.Write("long.wav", Wav(8000, 2, {16384, 0, 8192, 8192, -16384, 0}));
  dir.Write("short.wav", Wav(8000, 1, {-32768}));
  const auto data = *OpenDataset(dir.path(), WithAudio({.channels = 1, .frames = 2}));
  EXPECT_EQ(data->columns()[0].sample, (Type{DType::kFloat32, {2}}));
  EXPECT_EQ(data->columns()[0].sample_rate, 8000);
  EXPECT_THAT(ColumnValues(*data, 0), ElementsAre(0.25, 0.25, -1, 0));
  EXPECT_EQ((*OpenDataset(dir.path(), WithAudio({.channels = 1, .seconds = 0.0005})))->columns()[0].sample.shape,
            Shape{4});
  HostTensor two({DType::kFloat32, {2, 3}});
  const auto as_they_are = *OpenDataset(dir.path(), {});
  EXPECT_THAT(Message(as_they_are->Read(1, 0, two.mutable_bytes())), HasSubstr("short.wav: channels: 1, but 2"));
  EXPECT_EQ(as_they_are->StableName(1), "short.wav");
}

// A sine that is sampled at two rates is the same sine.
TEST(AudioFolder, Resamples) {
  const TempDir dir;
  const auto sine = [](int rate, int frames) {
    std::vector<int16_t> samples;
    for (int t = 0; t < frames; ++t)
      samples.push_back(static_cast<int16_t>(std::lround(20000 * std::sin(2 * std::numbers::pi * 440 * t / rate))));
    return Wav(rate, 1, samples);
  };
  dir.Write("a.wav", sine(16000, 1600));
  dir.Write("b.wav", sine(44100, 4410));
  dir.Write("c.wav", sine(8000, 400));
  const auto data = *OpenDataset(dir.path(), WithAudio({.sample_rate = 16000, .frames = 1600}));
  const std::vector<double> values = ColumnValues(*data, 0);
  for (int t = 200; t < 1400; ++t) EXPECT_NEAR(values[1600 + t], values[t], 2e-3) << t;
  for (int t = 200; t < 600; ++t) EXPECT_NEAR(values[3200 + t], values[t], 2e-3) << t;
  EXPECT_EQ(values[3200 + 900], 0) << "padded: the third sound is half as long";
  EXPECT_THAT(data->notes(), ElementsAre(HasSubstr("16000 Hz, 1 channel, 1600 frames")));
}

TEST(AudioTable, PathsAndLabels) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "w");
  dir.Write("w/1.wav", Wav(8000, 1, {16384, -32768}));
  dir.Write("w/2.wav", Wav(8000, 1, {0, 8192}));
  dir.Write("t.csv", "path,speaker,label\nw/2.wav,7,no\nw/1.wav,8,yes\nw/none.wav,9,no\n");
  const auto data = *OpenDataset(dir / "t.csv", {});
  ASSERT_EQ(data->columns().size(), 3U);
  EXPECT_EQ(data->columns()[0].name, "path");
  HostTensor sound({DType::kFloat32, {2}});
  ASSERT_TRUE(data->Read(0, 0, sound.mutable_bytes()).ok());
  EXPECT_THAT(sound.ToDoubles(), ElementsAre(0, 0.25));
  EXPECT_THAT(ColumnValues(*data, 1), ElementsAre(7, 8, 9));
  EXPECT_THAT(ColumnValues(*data, 2), ElementsAre(0, 1, 0));
  EXPECT_THAT(data->columns()[2].classes, ElementsAre("no", "yes"));
  EXPECT_THAT(Message(data->Read(2, 0, sound.mutable_bytes())), HasSubstr("none.wav"));
  EXPECT_EQ(data->Describe(1), dir / "w/1.wav");
}

TEST(ClassMap, NamesByLineOrByIndex) {
  const TempDir dir;
  EXPECT_THAT(*ReadClassMap(dir.Write("m.txt", "dog\r\ncat\n\nbird")), ElementsAre("dog", "cat", "bird"));
  EXPECT_THAT(*ReadClassMap(dir.Write("m.csv", "\"a, b\",1\nc,0\n")), ElementsAre("c", "a, b"));
  const auto error = [&](std::string_view text) { return Message(ReadClassMap(dir.Write("m.csv", text)).status()); };
  EXPECT_THAT(error("a,0\nb,2\n"), HasSubstr("m.csv: row 2: index 2 is not below the 2 classes"));
  EXPECT_THAT(error("a,0\nb,0\n"), HasSubstr("row 2: index 0 occurs twice"));
  EXPECT_THAT(error("a\na\n"), HasSubstr("row 2: the name 'a' occurs twice"));
  EXPECT_THAT(error("a,0\nb\n"), HasSubstr("row 2: expected a name, or name,index"));
  EXPECT_THAT(error("a,x\n"), HasSubstr("'x' is no index of a class"));
  EXPECT_THAT(error("\n"), HasSubstr("there are no classes"));
}

TEST(NpzFolder, OneFilePerSample) {
  const TempDir dir;
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(WriteNpz(dir / StrCat("s", i, ".npz"),
                         {{"x", HostTensor::FromInts({i, i + 1})}, {"y", HostTensor({DType::kInt64, {}})}})
                    .ok());
  dir.Write(".DS_Store", "x");
  const auto data = *OpenDataset(dir.path(), {});
  EXPECT_THAT(ColumnValues(*data, 0), ElementsAre(0, 1, 1, 2, 2, 3));
  EXPECT_EQ(data->columns()[1].sample, (Type{DType::kInt64, {}}));
  EXPECT_EQ(data->Describe(2), dir / "s2.npz");
  ASSERT_TRUE(WriteNpz(dir / "s1.npz", {{"x", HostTensor::FromInts({1})}}).ok());
  HostTensor x(data->columns()[0].sample);
  EXPECT_THAT(Message(data->Read(1, 0, x.mutable_bytes())), HasSubstr("s1.npz: 'x' is i64[1], but i64[2] in s0.npz"));
  EXPECT_THAT(Message(data->Read(1, 1, x.mutable_bytes().first(8))), HasSubstr("there is no array 'y'"));
  std::filesystem::remove(dir / "s2.npz");
  EXPECT_THAT(Message(data->Read(2, 0, x.mutable_bytes())), HasSubstr("s2.npz: No such file"));
}

// A .npy file of texts of 4 characters (U4) that has this shape.
std::string NpyTexts(const std::string& shape, const std::vector<std::string>& texts) {
  std::string dict = StrCat("{'descr': '<U4', 'fortran_order': False, 'shape': ", shape, ", }");
  dict.resize(118 - 1, ' ');
  std::string bytes = std::string("\x93NUMPY\1\0", 8) + std::string{static_cast<char>(118), '\0'} + dict + "\n";
  for (const std::string& text : texts) {
    for (size_t i = 0; i < 4; ++i) bytes += std::string{i < text.size() ? text[i] : '\0', '\0', '\0', '\0'};
  }
  return bytes;
}

TEST(Npy, TextsAreAColumn) {
  const TempDir dir;
  const std::string path = dir.Write("label.npy", NpyTexts("(3,)", {"dog", "cat", "dog"}));
  const auto classes = *OpenDataset(path, {});
  EXPECT_THAT(classes->columns()[0].classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(ColumnValues(*classes, 0), ElementsAre(1, 0, 1));
  const auto texts = *OpenDataset(path, {.text = {.names = {"label"}}});
  EXPECT_EQ(*texts->ReadText(1, 0), "cat");
  const auto by_index = *OpenDataset(path, {.text = {.names = {"0"}}});
  EXPECT_TRUE(by_index->columns()[0].text);
}

void WriteInts(const TempDir& dir, const char* name, const std::vector<int64_t>& values) {
  const HostTensor array = HostTensor::FromInts(values);
  const auto bytes = array.bytes();
  dir.Write(name, *NpyPreamble(array.type()) + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST(NpyFolder, AnArrayInEachFile) {
  const TempDir dir;
  WriteInts(dir, "x.npy", {5, 6, 7});
  dir.Write("y.npy", NpyTexts("(3,)", {"dog", "cat", "dog"}));
  const auto data = *OpenDataset(dir.path(), {});
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->columns()[0].name, "x");
  EXPECT_THAT(ColumnValues(*data, 0), ElementsAre(5, 6, 7));
  EXPECT_THAT(ColumnValues(*data, 1), ElementsAre(1, 0, 1));
  WriteInts(dir, "z.npy", {5, 6});
  EXPECT_THAT(Message(OpenDataset(dir.path(), {}).status()), HasSubstr("z.npy: has 2 samples, but x has 3"));

  const TempDir parts;
  for (const char* name : {"x_train.npy", "y_train.npy"}) WriteInts(parts, name, {1, 2, 3});
  for (const char* name : {"x_test.npy", "y_test.npy"}) WriteInts(parts, name, {4, 5});
  EXPECT_EQ((*OpenDataset(parts.path(), {}))->size(), 3);
  const auto evaluation = *OpenDataset(parts.path(), {.eval_split = true});
  EXPECT_EQ(evaluation->size(), 2);
  EXPECT_EQ(evaluation->columns()[1].name, "y");
  EXPECT_TRUE(FindSource(parts.path())->source->has_eval_samples(parts.path()));
}

}  // namespace
}  // namespace onnxtrain
