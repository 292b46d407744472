// Reads the files that make_files.py wrote. Skipped where libonnxtrain_arrow.so is not built.
#include "frontend/data/arrow/arrow_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "frontend/base/files.h"
#include "frontend/data/arrow/byte_store.h"
#include "frontend/data/sources/source.h"
#include "tests/frontend/data/files.h"
#include "tests/fuzz/mutator.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

int FindColumn(const Dataset& data, const std::string& name) {
  const auto found = std::ranges::find(data.columns(), name, &Column::name);
  return found == data.columns().end() ? -1 : static_cast<int>(found - data.columns().begin());
}

std::string ArrowTestFile(const std::string& name) { return RepoPath("tests/frontend/data/arrow/files/" + name); }

class ArrowFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(LibraryFolder() / "../lib/libonnxtrain_arrow.so"))
      GTEST_SKIP() << "libonnxtrain_arrow.so is not built: tools/setup_arrow.sh";
  }

  // Opens a file of make_files.py.
  void Open(const std::string& name, DatasetOptions options = {}) {
    options.images.width = options.images.height = 2;
    const auto opened = OpenDataset(ArrowTestFile(name), options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    data_ = *opened;
  }
  const Column& column(const std::string& name) const { return data_->columns()[FindColumn(*data_, name)]; }
  std::vector<double> Values(const std::string& name) const { return ColumnValues(*data_, FindColumn(*data_, name)); }
  std::vector<std::string> Texts(const std::string& name) const {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < data_->size(); ++i)
      texts.push_back(data_->ReadText(i, FindColumn(*data_, name)).value_or("error"));
    return texts;
  }

  std::shared_ptr<const Dataset> data_;
};

class FlatFiles : public ArrowFiles, public testing::WithParamInterface<const char*> {};

TEST_P(FlatFiles, HaveNumbersOfTheirTypes) {
  Open(GetParam());
  EXPECT_THAT(Values("i"), ElementsAre(1, -2, 3));
  EXPECT_EQ(column("i").sample.dtype, DType::kInt8);
  EXPECT_EQ(column("u").sample.dtype, DType::kUInt64);
  EXPECT_THAT(Values("f"), ElementsAre(0.5, 1.5, -2.5));
  EXPECT_THAT(Values("b"), ElementsAre(1, 0, 1));
  EXPECT_THAT(Values("d"), ElementsAre(1.25, -0.01, 99.99));
  EXPECT_THAT(Values("day"), ElementsAre(19782, 19782, 19782));  // days since 1970
  EXPECT_THAT(Values("number"), ElementsAre(1, 2.5, 3));
  EXPECT_THAT(column("name").problem, HasSubstr("row 0, column 'name': is text, not a number"));
}

TEST_P(FlatFiles, HaveMissingValues) {
  Open(GetParam());
  EXPECT_THAT(column("gap").problem, HasSubstr("row 1: missing value"));
  Open(GetParam(), {.missing = {.names = {"gap"}}});
  const std::vector<double> values = Values("gap");
  EXPECT_TRUE(values[0] == 1 && std::isnan(values[1]) && values[2] == 3);
  Open(GetParam(), {.skip_bad = true});
  double value = 0;
  const auto out = std::as_writable_bytes(std::span(&value, 1));
  EXPECT_TRUE(data_->Read(0, FindColumn(*data_, "gap"), out).ok());
  EXPECT_THAT(Message(data_->Read(1, FindColumn(*data_, "gap"), out)), HasSubstr("row 1, column 'gap': missing value"));
}

TEST_P(FlatFiles, HaveClassesAndTexts) {
  Open(GetParam(), {.label = {"name"}, .categories = {.names = {"c"}}, .text = {.names = {"text", "day"}}});
  EXPECT_THAT(column("name").classes, ElementsAre("x", "y"));
  EXPECT_THAT(Values("name"), ElementsAre(0, 1, 0));
  EXPECT_THAT(Values("c"), ElementsAre(0, 1, 0));
  EXPECT_THAT(Texts("text"), ElementsAre("one", "", "é"));
  EXPECT_THAT(Texts("day"), ElementsAre("2024-02-29", "2024-02-29", "2024-02-29"));
  EXPECT_THAT(data_->Describe(2), HasSubstr("row 2"));
}

INSTANTIATE_TEST_SUITE_P(Formats, FlatFiles, testing::Values("flat.parquet", "flat.feather"));

class NestedFiles : public FlatFiles {};

TEST_P(NestedFiles, HaveTensorsAndFields) {
  Open(GetParam());
  EXPECT_EQ(column("v").sample, (Type{DType::kInt64, {2}}));
  EXPECT_THAT(Values("v"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(column("m").sample, (Type{DType::kFloat64, {2, 1}}));
  EXPECT_THAT(column("r").problem, HasSubstr("row 1: its shape [2] is not the [1] of the first row"));
  EXPECT_THAT(column("hole").problem, HasSubstr("row 1: a list holds null, not a number"));
  EXPECT_THAT(Values("p.x"), ElementsAre(1, 2, 3));
  EXPECT_EQ(FindColumn(*data_, "p"), -1);
  EXPECT_THAT(column("messages").problem, HasSubstr("(`text` reads it as JSON)"));
}

TEST_P(NestedFiles, AreReadAsJson) {
  Open(GetParam(), {.text = {.names = {"messages", "map", "p"}}});
  EXPECT_EQ(Texts("messages")[0], R"([{"role":"user","content":"Hi \"you\"\n"},{"role":"assistant","content":null}])");
  EXPECT_EQ(Texts("messages")[1], "[]");
  EXPECT_EQ(Texts("messages")[2], "");
  EXPECT_THAT(Texts("map"), ElementsAre(R"({"a":1})", "{}", R"({"b":2})"));
  EXPECT_EQ(Texts("p")[1], R"({"x":2,"y":{"z":"b"}})");
}

TEST_P(NestedFiles, HavePicturesAndNamedLabels) {
  Open(GetParam());
  EXPECT_TRUE(column("image").picture);
  EXPECT_THAT(column("label").classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(Values("label"), ElementsAre(0, 1, 1));
  std::vector<std::byte> pixels(column("image").sample.bytes());
  EXPECT_TRUE(data_->Read(1, FindColumn(*data_, "image"), pixels).ok());
  EXPECT_THAT(Message(data_->Read(2, FindColumn(*data_, "image"), pixels)),
              HasSubstr("row 2: column 'image': missing value"));
}

class SoundFiles : public ArrowFiles {};

TEST_F(SoundFiles, AreReadFromBytes) {
  Open("sounds.parquet");
  EXPECT_EQ(column("audio").sample_rate, 8000);
  HostTensor sound(column("audio").sample);
  ASSERT_TRUE(data_->Read(0, FindColumn(*data_, "audio"), sound.mutable_bytes()).ok());
  EXPECT_THAT(sound.ToDoubles(), ElementsAre(0.5, 0));
  EXPECT_THAT(Message(data_->Read(1, FindColumn(*data_, "audio"), sound.mutable_bytes())),
              HasSubstr("sounds.parquet: row 1, column 'audio': missing value"));
  EXPECT_THAT(Values("label"), ElementsAre(0, 1));
}

INSTANTIATE_TEST_SUITE_P(Formats, NestedFiles, testing::Values("nested.parquet", "nested.arrow"));

TEST_F(ArrowFiles, SpillToAFileBeyondTheMemoryLimit) {
  Open("flat.parquet", {.text = {.names = {"text"}}, .max_bytes = 1 << 20});
  EXPECT_THAT(Texts("text"), ElementsAre("one", "", "é"));
  ByteStore store(std::make_shared<StoreBudget>(4));
  const std::string text = "abcdefgh";
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(store.Append(std::as_bytes(std::span(text))).ok());
  EXPECT_TRUE(store.in_file());
  std::string part(4, ' ');
  ASSERT_TRUE(store.ReadAt(6, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "ghab");
}

TEST_F(ArrowFiles, OfOtherKindsAreRefused) {
  const TempDir folder;
  EXPECT_THAT(Message(OpenDataset(folder.Write("a.parquet", "PAR1 is not all"), {}).status()),
              HasSubstr("a.parquet: "));
  EXPECT_THAT(Message(OpenDataset(folder.Write("a.feather", "FEA1...."), {}).status()), HasSubstr("version 1"));
}

TEST_F(ArrowFiles, OfAFolderAreParts) {
  const TempDir folder;
  std::filesystem::create_directory(folder / "data");
  for (const char* name : {"train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"})
    std::filesystem::copy_file(ArrowTestFile("flat.parquet"), folder / (std::string("data/") + name + ".parquet"));
  EXPECT_TRUE(FindSource(folder.path())->source->has_eval_samples(folder.path()));
  const auto train = OpenDataset(folder.path(), {}), eval = OpenDataset(folder.path(), {.eval_split = true});
  ASSERT_TRUE(train.ok() && eval.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 6);
  EXPECT_THAT((*train)->Describe(4), HasSubstr("train-00001-of-00002.parquet: row 1"));
  EXPECT_THAT(ColumnValues(**train, 0), ElementsAre(1, -2, 3, 1, -2, 3));
  EXPECT_EQ((*eval)->size(), 3);
  std::filesystem::remove(folder / "data/train-00001-of-00002.parquet");
  EXPECT_THAT(Message(OpenDataset(folder.path(), {}).status()), HasSubstr("there are 1 of 2 shards"));
}

// Opens a file and reads all of its columns, as numbers or as texts. Returns true if all could be read.
bool ReadAll(const std::string& path, bool as_text) {
  DatasetOptions options{.images = {.width = 2, .height = 2}, .max_bytes = 1 << 24};
  options.text.all = as_text;
  const auto opened = OpenDataset(path, options);
  bool complete = opened.ok();
  EXPECT_EQ(Message(opened.status()).find('\n'), std::string::npos);
  if (!opened.ok()) return false;
  for (int c = 0; c < std::ssize((*opened)->columns()); ++c) {
    std::vector<std::byte> value((*opened)->columns()[c].sample.bytes());
    for (int64_t i = 0; i < std::min<int64_t>((*opened)->size(), 8); ++i) {
      const bool text = (*opened)->columns()[c].text;
      complete &= text ? (*opened)->ReadText(i, c).ok() : (*opened)->Read(i, c, value).ok();
    }
  }
  return complete;
}

class Mutations : public FlatFiles {};

TEST_P(Mutations, AreReadOrRefused) {
  const TempDir folder;
  Mutator mutator({ReadFile(ArrowTestFile(GetParam()))}, 1);
  int refused = 0;
  const int count = CountMutations();
  for (int i = 0; i < count; ++i) {
    const std::string path = folder.Write(GetParam(), mutator.Next());
    refused += ReadAll(path, i % 2 == 0) ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, Mutations,
                         testing::Values("flat.parquet", "nested.parquet", "flat.feather", "nested.arrow"));

}  // namespace
}  // namespace onnxtrain
