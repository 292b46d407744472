#include "frontend/data/sources/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/data/bind/split.h"
#include "frontend/data/sources/dataset.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::shared_ptr<const Dataset>> OpenOnes(const std::string& path, const DatasetOptions&) {
  return InMemoryDataset(path, {"x"}, {HostTensor::FromInts({1, 1, 1})});
}

TEST(Source, IsFoundBySuffixContentAndName) {
  const TempDir dir;
  const std::string table = dir.Write("T.CSV", "a,b\n1,2\n"), text = dir.Write("rows.rec", "a,b\n1,2\n3,4\n");
  EXPECT_EQ(FindSource(table)->source->name, "csv");
  EXPECT_EQ(FindSource("x.tsv.gz")->source->name, "tsv");
  EXPECT_EQ(FindSource("x.csv.zst")->source->name, "csv");
  EXPECT_EQ(FindSource(dir.Write("plain", std::string("\0\0\x08\x01\0\0\0\1a", 9)))->source->name, "idx");
  EXPECT_EQ(FindSource("csv:" + text)->path, text);
  EXPECT_EQ((*OpenDataset("csv:" + text, {}))->size(), 2);
  EXPECT_THAT(Message(FindSource(text).status()),
              HasSubstr("rows.rec: not a known kind of data (.npz, .npy, .safetensors, .csv,"));
  EXPECT_THAT(Message(FindSource("none:" + text).status()), HasSubstr("none:" + text + ": No such file"));
}

TEST(Source, FilesOfOtherProgramsAreRefusedWithAdvice) {
  const TempDir dir;
  EXPECT_THAT(Message(OpenDataset(dir.Write("a.orc", "ORC"), {}).status()),
              HasSubstr("a.orc: ORC is not read; pandas.read_orc(FILE).to_csv"));
  EXPECT_THAT(Message(OpenDataset(dir.Write("B.XLSX", "PK"), {}).status()), HasSubstr("save the sheet as CSV"));
  EXPECT_THAT(Message(OpenDataset(dir.Write("a.tfrecord", "x"), {}).status()), HasSubstr("TFRecord is not read"));
  EXPECT_THAT(Message(OpenDataset(dir.Write("a.sqlite", "x"), {}).status()), HasSubstr("export its rows"));
  EXPECT_THAT(Message(OpenDataset(dir.Write("a.arff", "@data"), {}).status()), HasSubstr("scipy.io.arff"));
  EXPECT_THAT(Message(OpenDataset(dir.Write("noext", "a,b\n1,2\n"), {}).status()),
              HasSubstr("noext reads it as a table"));
  std::filesystem::create_directories(dir / "yolo/images");
  std::filesystem::create_directories(dir / "yolo/labels");
  EXPECT_THAT(Message(OpenDataset(dir / "yolo", {}).status()), HasSubstr("boxes (YOLO, COCO) are not read"));
  EXPECT_THAT(Message(OpenDataset(dir.Write("a.RDS", "x"), {}).status()), HasSubstr("a file of R is not read"));
  std::filesystem::create_directories(dir / "saved");
  dir.Write("saved/part-00000.orc", "ORC");
  EXPECT_THAT(Message(OpenDataset(dir / "saved", {}).status()), HasSubstr("saved: ORC is not read"));
  EXPECT_THAT(Message(OpenDataset(dir / "none.parquet", {}).status()), HasSubstr("No such file"));
  EXPECT_EQ((*OpenDataset(dir.Write("lines.json", "{\"a\": 1, \"y\": 0}\n{\"a\": 2, \"y\": 1}\n"), {}))->size(), 2);
}

// The values of column `y` of what the file holds.
std::vector<int64_t> ReadLabels(const Dataset& data) {
  const auto c = static_cast<int>(data.columns().size()) - 1;
  std::vector<int64_t> labels(data.size());
  EXPECT_TRUE(data.ReadRange(0, data.size(), c, std::as_writable_bytes(std::span(labels))).ok());
  return labels;
}

TEST(Source, JsonDocumentsAreReadAsLines) {
  const TempDir dir;
  for (const char* json : {
           R"([{"a": 1, "y": 5}, {"a": 2, "y": 3}])",
           "\xef\xbb\xbf[\n  {\n    \"a\": 1,\n    \"y\": 5\n  },\n  {\"a\": 2, \"y\": 3}\n]\n",
           R"({"version": "1.0", "data": [{"a": 1, "y": 5}, {"a": 2, "y": 3}]})",
           R"({"a": [1, 2], "y": [5, 3]})",
           R"({"name": "set", "a": [1, 2], "version": 3, "y": [5, 3], "note": null})",
           R"({"a": {"0": 1, "7": 2}, "y": {"0": 5, "7": 3}})",
           R"({"columns": ["a", "y"], "index": [0, 7], "data": [[1, 5], [2, 3]]})",
           "{\"a\": 1, \"y\": 5}\n{\"a\": 2, \"y\": 3}",
       }) {
    const auto data = OpenDataset(dir.Write("a.json", json), {});
    ASSERT_TRUE(data.ok()) << json << data.status();
    EXPECT_EQ((*data)->columns().size(), 2u) << json;
    EXPECT_EQ(ReadLabels(**data), (std::vector<int64_t>{5, 3})) << json;
  }
  EXPECT_EQ((*OpenDataset(dir.Write("b.json", R"({"a": [1, 2], "y": 0})"), {}))->size(), 1);  // a sample
  EXPECT_EQ((*OpenDataset(dir.Write("b.json", "{\n  \"x\": [1, 2, 3]\n}\n"), {}))->size(), 1);
  EXPECT_EQ((*OpenDataset(dir.Write("b.jsonl", R"({"a": [1, 2], "b": [3, 4]})"), {}))->size(), 1);
}

TEST(Source, KeysWithinObjectsAreColumns) {
  const TempDir dir;
  const std::string lines = R"({"a": 1, "meta": {"id": "u", "score": {"y": 5}}})"
                            "\n"
                            R"({"a": 2, "meta": {"id": "v", "score": {"y": 3}}})"
                            "\n";
  const auto data = OpenDataset(dir.Write("a.jsonl", lines), {.label = {"meta.score.y"}});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->columns().size(), 3u);
  EXPECT_EQ((*data)->columns()[2].name, "meta.score.y");
  EXPECT_EQ(ColumnValues(**data, 2), (std::vector<double>{5, 3}));
  EXPECT_THAT(Message(OpenDataset(dir.Write("b.jsonl", R"({"a.b": 1, "a": {"b": 2}})"), {}).status()),
              HasSubstr("row 1: the key 'a.b' comes twice"));
  std::string wide = "\xff\xfe";
  for (const char c : lines) wide += {c, '\0'};
  EXPECT_EQ((*OpenDataset(dir.Write("c.jsonl", wide), {}))->size(), 2);
}

TEST(Source, FoldersOfTablesAndCompressedArchivesAreExplained) {
  const TempDir dir;
  const std::string table = dir.Write("train.csv", "a,y\n1,2\n");
  EXPECT_THAT(Message(FindSource(dir.path()).status()),
              HasSubstr("a folder of tables is not read; name one: `data` " + table));
  EXPECT_THAT(Message(FindSource(dir.Write("a.tar.gz", "x")).status()), HasSubstr("decompress it to a .tar"));
}

TEST(Source, OtherJsonDocumentsAreRefused) {
  const TempDir dir;
  const auto error = [&](const std::string& json) {
    return Message(OpenDataset(dir.Write("a.json", json), {}).status());
  };
  EXPECT_THAT(error("[[1, 2], [3, 4]]"), HasSubstr("a.json: the array must hold objects, one for each sample"));
  EXPECT_THAT(error(R"({"images": [{"id": 1}], "annotations": [{"id": 1}], "info": {}})"),
              HasSubstr("'images' and 'annotations' are lists of objects (jq -c '.[\"annotations\"][]' FILE"));
  EXPECT_THAT(error(R"({"columns": ["a", "y"], "data": [[1, 5], [2]]})"),
              HasSubstr("element 1 of 'data' is no list of 2 values"));
  EXPECT_THAT(error("{\"a\": 1,\n"), HasSubstr("row 1: not a JSON object"));
}

TEST(Source, AFileWhoseNameHasAColonIsItself) {
  const TempDir dir;
  const std::string path = dir.Write("csv:a.tsv", "a\tb\n1\t2\n");
  EXPECT_EQ(FindSource(path)->source->name, "tsv");
  EXPECT_EQ(SourcePath(path), path);
  EXPECT_EQ(SourcePath("csv:a.txt"), "a.txt");
  EXPECT_EQ(SourcePath("C:a.txt"), "C:a.txt");
}

TEST(Source, ProgramsRegisterTheirOwn) {
  const TempDir dir;
  ASSERT_TRUE(RegisterSource({.name = "ones", .what = ".ones", .suffixes = {".ones"}, .open = OpenOnes}).ok());
  EXPECT_EQ((*OpenDataset("a.ones", {}))->size(), 3);
  EXPECT_EQ((*OpenDataset("ones:anything", {}))->Describe(1), "anything: sample 1");
  EXPECT_THAT(Message(FindSource(dir.Write("x", "abc")).status()), HasSubstr("(.ones, "));
  EXPECT_THAT(Message(RegisterSource({.name = "ones", .open = OpenOnes})), HasSubstr("the name is taken"));
  EXPECT_THAT(Message(RegisterSource({.name = "a b", .open = OpenOnes})), HasSubstr("letters, digits"));
  EXPECT_THAT(Message(RegisterSource({.name = "closed"})), HasSubstr("no `open`"));
  // Comes before the built-in sources.
  ASSERT_TRUE(RegisterSource({.name = "mine", .what = ".npy", .suffixes = {".npy"}, .open = OpenOnes}).ok());
  EXPECT_EQ(FindSource("x.npy")->source->name, "mine");
}

TEST(TextColumn, KeepsTextThroughViews) {
  const TempDir dir;
  const std::string path = dir.Write("t.csv", "text,label\n\"a, b\",0\n7,1\n,0\n");
  const auto data = *OpenDataset(path, {.text = {.names = {"text"}}});
  EXPECT_TRUE(data->columns()[0].text);
  EXPECT_EQ(*data->ReadText(0, 0), "a, b");
  EXPECT_EQ(*SliceDataset(data, 1, 3)->ReadText(0, 0), "7");
  EXPECT_EQ(*SubsetDataset(data, {2, 0})->ReadText(1, 0), "a, b");
  const auto more = WithConstants(data, {{"one", HostTensor::FromInts({1})}});
  EXPECT_EQ(*more->ReadText(1, 0), "7");
  EXPECT_EQ(Message(data->ReadText(1, 1).status()), path + ": row 3, column 'label': no text");
  double value;
  EXPECT_EQ(Message(data->Read(0, 0, std::as_writable_bytes(std::span(&value, 1)))), path + ": column 'text' is text");
}

TEST(TextColumn, CountsForTheSplit) {
  const TempDir dir;
  std::string text = "text,label\n";
  for (int i = 0; i < 200; ++i) text += StrCat("word", i, ",1\n");
  const auto data = *OpenDataset(dir.Write("t.csv", text), {.text = {.names = {"text"}}});
  const SplitRows rows = SplitByHash(*data, 0.5, 1);
  EXPECT_GT(rows.eval.size(), 50u);  // equal samples would all be on one side
  EXPECT_GT(rows.train.size(), 50u);
}

TEST(TextColumn, CountsForTheMemoryLimit) {
  const TempDir dir;
  const std::string path = dir.Write("t.csv", "text,label\n" + std::string(5000, 'x') + ",0\n");
  EXPECT_THAT(Message(OpenDataset(path, {.text = {.names = {"text"}}, .max_bytes = 4000}).status()),
              HasSubstr("the limit is"));
}

}  // namespace
}  // namespace onnxtrain
