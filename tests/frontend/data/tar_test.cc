#include "frontend/data/sources/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/source.h"
#include "tests/frontend/data/files.h"
#include "tests/media_files.h"

namespace onnxtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Members = std::vector<std::pair<std::string, std::string>>;

using SetFormat = int (*)(archive*);

void WriteTar(const std::string& path, const Members& members,
              SetFormat format = archive_write_set_format_pax_restricted) {
  archive* a = archive_write_new();
  format(a);
  archive_write_open_filename(a, path.c_str());
  for (const auto& [name, content] : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    archive_entry_set_filetype(entry, name.ends_with("/") ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    ASSERT_GE(archive_write_header(a, entry), ARCHIVE_WARN) << archive_error_string(a);
    archive_write_data(a, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_close(a);
  archive_write_free(a);
}

std::string Array(std::string_view bytes) {
  return *NpyPreamble({DType::kUInt8, {static_cast<int64_t>(bytes.size())}}) + std::string(bytes);
}

std::string OpenError(const std::string& path) { return Message(OpenDataset(path, {}).status()); }

TEST(Tar, ColumnsOfAllKinds) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"d/", ""},
                           {"d/0001.x.npy", Array("ab")},
                           {"d/0001.cls", "7\n"},
                           {"d/0001.json", R"({"age": 3})"},
                           {"d/.hidden", "x"},
                           {"d/0002.json", R"({"age": 4})"},
                           {"d/0002.X.npy", Array("cd")},
                           {"d/0002.cls", "5"}});
  const auto data = *OpenDataset(dir / "a.tar", {});
  ASSERT_EQ(data->size(), 2);
  ASSERT_EQ(data->columns().size(), 3u);
  EXPECT_EQ(data->columns()[0].name, "x.npy");
  EXPECT_THAT(ColumnValues(*data, 0), ElementsAre('a', 'b', 'c', 'd'));
  EXPECT_THAT(ColumnValues(*data, 1), ElementsAre(3, 4));
  EXPECT_EQ(data->columns()[2].name, "cls");
  EXPECT_THAT(ColumnValues(*data, 2), ElementsAre(7, 5));
  EXPECT_EQ(data->Describe(1), dir / "a.tar" + ": d/0002");
}

TEST(Tar, NamesOfClassesAndTexts) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"1.txt", "one"}, {"1.cls", "dog"}, {"2.txt", "two"}, {"2.cls", "cat"}});
  const auto data = *OpenDataset(dir / "a.tar", {.text = {.names = {"txt"}}});
  EXPECT_EQ(*data->ReadText(1, 0), "two");
  EXPECT_THAT(data->columns()[1].classes, ElementsAre("cat", "dog"));
}

// Headers of all kinds stand before the bytes: long names, pax records, ustar.
TEST(Tar, OffsetsInEveryFormat) {
  const TempDir dir;
  const std::string name(180, 'n');
  for (const SetFormat format :
       {archive_write_set_format_pax, archive_write_set_format_pax_restricted, archive_write_set_format_gnutar}) {
    Members members;
    for (int i = 0; i < 50; ++i) members.push_back({StrCat("\u00e9", name, i, ".npy"), Array(StrCat(10 + i))});
    WriteTar(dir / "a.tar", members, format);
    const auto data = OpenDataset(dir / "a.tar", {});
    ASSERT_TRUE(data.ok()) << data.status();
    for (int i : {49, 0, 23}) {
      char value[2];
      ASSERT_TRUE((*data)->Read(i, 0, std::as_writable_bytes(std::span(value))).ok());
      EXPECT_EQ(std::string(value, 2), StrCat(10 + i));
    }
  }
}

// A picture of one color.
std::string Bmp(uint8_t red, uint8_t green, uint8_t blue) {
  std::string bmp("BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\2\0\0\0\2\0\0\0\1\0\x18\0", 30);
  bmp.resize(54, '\0');
  for (int row = 0; row < 2; ++row) {
    for (int x = 0; x < 2; ++x)
      for (const uint8_t c : {blue, green, red}) bmp += static_cast<char>(c);
    bmp += std::string(2, '\0');
  }
  return bmp;
}

TEST(Tar, Pictures) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"1.bmp", Bmp(10, 20, 30)}, {"1.cls", "1"}, {"2.bmp", Bmp(40, 50, 60)}, {"2.cls", "0"}});
  DatasetOptions options;
  options.images.width = options.images.height = 1;
  const auto opened = OpenDataset(dir / "a.tar", options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Dataset& data = **opened;
  EXPECT_TRUE(data.columns()[0].image);
  EXPECT_THAT(ColumnValues(data, 0), ElementsAre(10, 20, 30, 40, 50, 60));
  EXPECT_THAT(ColumnValues(data, 1), ElementsAre(1, 0));
  WriteTar(dir / "only.tar", {{"1.bmp", Bmp(1, 2, 3)}});
  EXPECT_THAT(ColumnValues(**OpenDataset(dir / "only.tar", options), 0), ElementsAre(1, 2, 3));
  WriteTar(dir / "bad.tar", {{"1.bmp", "nonsense"}});
  const auto bad = *OpenDataset(dir / "bad.tar", options);
  HostTensor pixel(bad->columns()[0].sample);
  EXPECT_THAT(Message(bad->Read(0, 0, pixel.mutable_bytes())), HasSubstr("bad.tar: 1.bmp: "));
  EXPECT_THAT(OpenError(dir / "a.tar"), HasSubstr("a.tar: "));
}

TEST(Tar, ModelsWithoutPicturesReadTheRest) {
  const TempDir dir;
  WriteTar(dir / "a.tar",
           {{"0.txt", "good"}, {"0.png", "x"}, {"0.cls", "1"}, {"1.txt", "bad"}, {"1.png", "x"}, {"1.cls", "0"}});
  const ImageOptions none{.problem = "none of the model's inputs takes pictures", .wanted = false};
  const auto data = OpenDataset(dir / "a.tar", {.images = none, .text = {.names = {"txt"}}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->columns().size(), 2u);
  EXPECT_EQ(*(*data)->ReadText(1, 0), "bad");
  EXPECT_THAT((*data)->notes(), ElementsAre(HasSubstr("a.tar: the pictures (.png) are left out")));
  // A label alone feeds no model.
  WriteTar(dir / "b.tar", {{"0.png", "x"}, {"0.cls", "1"}, {"1.png", "x"}, {"1.cls", "0"}});
  EXPECT_THAT(Message(OpenDataset(dir / "b.tar", {.images = none}).status()), HasSubstr("takes pictures"));
}

TEST(Tar, Sounds) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"1.wav", Wav(8000, 1, {16384, 0})},
                           {"1.cls", "1"},
                           {"2.wav", Wav(8000, 1, {-16384})},
                           {"2.cls", "0"},
                           {"3.wav", "nonsense"},
                           {"3.cls", "0"}});
  DatasetOptions options;
  options.audio.frames = 2;
  const auto opened = OpenDataset(dir / "a.tar", options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Dataset& data = **opened;
  ASSERT_EQ(data.columns().size(), 2u);
  EXPECT_EQ(data.columns()[0].sample_rate, 8000);
  HostTensor sound(data.columns()[0].sample);
  ASSERT_TRUE(data.Read(0, 0, sound.mutable_bytes()).ok());
  EXPECT_THAT(sound.ToDoubles(), ElementsAre(0.5, 0));
  ASSERT_TRUE(data.Read(1, 0, sound.mutable_bytes()).ok());
  EXPECT_THAT(sound.ToDoubles(), ElementsAre(-0.5, 0));
  EXPECT_THAT(Message(data.Read(2, 0, sound.mutable_bytes())), HasSubstr("a.tar: 3.wav: "));
}

TEST(Tar, SeveralShards) {
  const TempDir dir;
  for (int i = 8; i < 11; ++i) WriteTar(dir / StrCat("s-", i < 10 ? "00" : "0", i, ".tar"), {{"k.cls", StrCat(i)}});
  const auto data = *OpenDataset(dir / "s-{008..010}.tar", {});
  EXPECT_THAT(ColumnValues(*data, 0), ElementsAre(8, 9, 10));
  EXPECT_EQ(data->Describe(2), dir / "s-010.tar" + ": k");
  EXPECT_THAT(OpenError(dir / "s-{008..011}.tar"), HasSubstr("s-011.tar: No such file"));
  EXPECT_THAT(OpenError(dir / "s-{9..8}.tar"), HasSubstr("{9..8} is no range of shards"));
}

TEST(Tar, FoldersAreTheClassesWhereNothingElseIs) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"./train/dog/1.npy", Array("ab")}, {"./train/cat/2.npy", Array("cd")}});
  const auto data = *OpenDataset(dir / "a.tar", {});
  ASSERT_EQ(data->columns().size(), 2u);
  EXPECT_EQ(data->columns()[1].name, "label");
  EXPECT_THAT(data->columns()[1].classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(ColumnValues(*data, 1), ElementsAre(1, 0));
  WriteTar(dir / "b.tar", {{"dog/1.npy", Array("ab")}, {"dog/2.npy", Array("cd")}});
  EXPECT_EQ((*OpenDataset(dir / "b.tar", {}))->columns().size(), 1u);
  WriteTar(dir / "c.tar", {{"a/1.cls", "0"}, {"a/1.npy", Array("ab")}, {"b/2.npy", Array("ab")}, {"b/2.cls", "1"}});
  EXPECT_EQ((*OpenDataset(dir / "c.tar", {}))->columns().size(), 2u);
}

TEST(Tar, MembersThatNoColumnHasAreTold) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"1.npy", Array("ab")},
                           {"1.url", "x"},
                           {"1.index", "3"},
                           {"2.npy", Array("cd")},
                           {"2.url", "x"},
                           {"2.index", "4"}});
  const auto data = OpenDataset(dir / "a.tar", {});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->columns().size(), 2u);
  EXPECT_EQ((*data)->columns()[1].name, "index");
  EXPECT_THAT(ColumnValues(**data, 1), ElementsAre(3, 4));
  EXPECT_THAT((*data)->notes(), ElementsAre(HasSubstr("left out: " + dir / "a.tar" + ": members .url are not known")));
}

TEST(Tar, TheLastPartOfAnExtensionIsItsKind) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"d/1.v1.npy", Array("ab")}, {"d/1.v1.cls", "dog"}});
  const auto data = OpenDataset(dir / "a.tar", {.label = {"v1.cls"}});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->columns().size(), 2u);
  EXPECT_EQ((*data)->columns()[0].name, "v1.npy");
  EXPECT_THAT((*data)->columns()[1].classes, ElementsAre("dog"));
}

TEST(Tar, BadArchives) {
  const TempDir dir;
  const std::string path = dir / "a.tar";
  const auto error = [&](const Members& members) {
    WriteTar(path, members);
    return OpenError(path);
  };
  EXPECT_THAT(error({{"1.cls", "1"}, {"1.json", "{}"}, {"2.cls", "2"}}), HasSubstr("a.tar: 2 has no member .json"));
  EXPECT_THAT(error({{"1.cls", "1"}, {"1.cls", "2"}}), HasSubstr("'1.cls' occurs twice"));
  EXPECT_THAT(error({{"readme", "1"}}), HasSubstr("'readme' has no extension"));
  EXPECT_THAT(error({{"1.exe", "1"}}), HasSubstr("members .exe are not known"));
  EXPECT_THAT(error({{"1.npy", "nonsense"}}), HasSubstr("a.tar: 1.npy: "));
  EXPECT_THAT(error({{"1.json", "{"}}), HasSubstr("a.tar: 1.json: not a JSON object"));
  EXPECT_THAT(error({}), HasSubstr("a.tar: there are no samples"));
  dir.Write("b.tar", "nonsense");
  EXPECT_THAT(OpenError(dir / "b.tar"), HasSubstr("b.tar: not a readable tar archive"));
  WriteTar(path, {{"1.npy", Array(std::string(100000, 'x'))}});
  std::filesystem::resize_file(path, 50000);
  EXPECT_THAT(OpenError(path), HasSubstr("a.tar: member '1.npy': reaches beyond the archive"));
}

TEST(Tar, ArchivesThatChange) {
  const TempDir dir;
  WriteTar(dir / "a.tar", {{"1.npy", Array("ab")}, {"2.npy", Array("abc")}, {"3.npy", Array(std::string(9000, 'x'))}});
  const auto data = *OpenDataset(dir / "a.tar", {});
  char out[2];
  const auto bytes = std::as_writable_bytes(std::span(out));
  EXPECT_THAT(Message(data->Read(1, 0, bytes)), HasSubstr("a.tar: 2.npy: u8[3], but the first sample has u8[2]"));
  std::filesystem::resize_file(dir / "a.tar", 1000);
  EXPECT_THAT(Message(data->Read(2, 0, bytes)), HasSubstr("a.tar: 3.npy: the file has become shorter"));
}

}  // namespace
}  // namespace onnxtrain
