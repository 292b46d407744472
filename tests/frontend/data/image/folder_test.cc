#include "frontend/data/image/picture_dataset.h"

#include <gmock/gmock.h>

#include "frontend/base/status.h"
#include "frontend/data/bind/split.h"
#include "frontend/data/load/cache.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/source.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A 24-bit BMP of one color a pixel, from the top left.
std::string Bmp(int width, int height, const std::vector<std::array<uint8_t, 3>>& colors) {
  std::string file("BM", 2), row;
  const auto number = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) file.push_back(static_cast<char>(value >> 8 * i));
  };
  number(0, 4), number(0, 4), number(54, 4), number(40, 4), number(width, 4), number(-height, 4), number(1, 2);
  number(24, 2), number(0, 4), number(0, 4), number(0, 4), number(0, 4), number(0, 4), number(0, 4);
  for (int y = 0; y < height; ++y) {
    const size_t start = file.size();
    for (int x = 0; x < width; ++x) {
      const auto& c = colors[(y * width + x) % colors.size()];
      file += {static_cast<char>(c[2]), static_cast<char>(c[1]), static_cast<char>(c[0])};
    }
    while ((file.size() - start) % 4 != 0) file.push_back(0);
  }
  return file;
}

// An 8-bit BMP whose palette is grey.
std::string MaskBmp(int width, int height, const std::vector<uint8_t>& classes) {
  std::string file = Bmp(width, height, {{0, 0, 0}}).substr(0, 54);
  file[28] = 8;
  file[10] = 0x36, file[11] = 4;
  for (int i = 0; i < 256; ++i) file += {static_cast<char>(i), static_cast<char>(i), static_cast<char>(i), 0};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < (width + 3) / 4 * 4; ++x)
      file.push_back(x < width ? static_cast<char>(classes[y * width + x]) : 0);
  }
  return file;
}

class ImageFolder : public testing::Test {
 protected:
  void Write(const std::string& name, std::string_view content) {
    fs::create_directories(fs::path(dir / name).parent_path());
    dir.Write(name, content);
  }
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const DatasetOptions& options) {
    return OpenDataset(dir.path(), options);
  }

  TempDir dir;
  DatasetOptions options{.images = {.width = 2, .height = 2, .channels = 3}};
};

TEST_F(ImageFolder, SubfoldersAreClassesInBytewiseOrder) {
  Write("b/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("a2/x/deep.bmp", Bmp(2, 2, {{4, 5, 6}}));
  Write("B/2.bmp", Bmp(2, 2, {{7, 8, 9}}));
  Write("a10/noname", Bmp(2, 2, {{10, 11, 12}}));  // known by its content
  const auto data = Open(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT((*data)->columns()[1].classes, ElementsAre("B", "a10", "a2", "b"));
  EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ((*data)->columns()[0].sample, (Type{DType::kUInt8, {3, 2, 2}}));
  const std::vector<double> pixels = ColumnValues(**data, 0);
  EXPECT_EQ(std::vector<double>(pixels.begin(), pixels.begin() + 12),
            (std::vector<double>{7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9}));
  EXPECT_EQ((*data)->Describe(2), dir / "a2/x/deep.bmp");
}

TEST_F(ImageFolder, LayoutAndChannelsAreThoseOfTheModel) {
  Write("a/1.bmp", Bmp(2, 1, {{10, 20, 30}, {40, 50, 60}}));
  const auto values = [&](ImageOptions images) {
    images.width = 2, images.height = 1;
    const auto data = Open({.images = images});
    EXPECT_TRUE(data.ok()) << data.status();
    return ColumnValues(**data, 0);
  };
  EXPECT_THAT(values({.channels_last = true}), ElementsAre(10, 20, 30, 40, 50, 60));
  EXPECT_THAT(values({.channels_last = true, .bgr = true}), ElementsAre(30, 20, 10, 60, 50, 40));
  EXPECT_THAT(values({}), ElementsAre(10, 40, 20, 50, 30, 60));
  EXPECT_THAT(values({.channels = 1}), ElementsAre(18, 48));
}

TEST_F(ImageFolder, OtherProportionsAreCutStretchedOrPadded) {
  Write("a/1.bmp", Bmp(4, 2, {{0, 0, 0}, {100, 0, 0}, {200, 0, 0}, {60, 0, 0}}));
  const auto reds = [&](ImageFit fit) {
    const auto data = Open({.images = {.width = 2, .height = 2, .fit = fit}});
    EXPECT_TRUE(data.ok()) << data.status();
    const std::vector<double> all = ColumnValues(**data, 0);
    return std::vector<double>(all.begin(), all.begin() + 4);
  };
  EXPECT_THAT(reds(ImageFit::kCrop), ElementsAre(100, 200, 100, 200));
  const std::vector<double> stretched = reds(ImageFit::kStretch), padded = reds(ImageFit::kPad);
  EXPECT_EQ(stretched[0], stretched[2]);
  EXPECT_GT(stretched[0], 40);
  EXPECT_LT(stretched[0], 100);
  EXPECT_EQ(padded[0], stretched[0]);  // one row of pixels, and one of black
  EXPECT_EQ(padded[2], 0);
}

TEST_F(ImageFolder, StrayFilesAreLeftOutAndNamed) {
  for (const char* name : {"a/1.bmp", "a/2.bmp", "a/3.bmp"}) Write(name, Bmp(2, 2, {{1, 2, 3}}));
  for (const char* name : {".DS_Store", "a/.DS_Store", "a/Thumbs.db", "a/notes.txt", "a/empty"}) Write(name, "x");
  Write("a/empty", "");
  const auto data = Open(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 3);
  EXPECT_THAT((*data)->notes(),
              ElementsAre(StrCat("left out 2 files of ", dir.path(), " that are no pictures: a/empty, …")));
}

TEST_F(ImageFolder, BrokenPicturesAreErrorsWithTheirName) {
  Write("a/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("a/empty.png", "");
  Write("a/short.bmp", Bmp(2, 2, {{1, 2, 3}}).substr(0, 60));
  Write("a/text.jpg", "no picture");
  const auto data = Open(options);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<std::byte> out(12);
  const auto error = [&](int64_t i) { return Message((*data)->Read(i, 0, out)); };
  EXPECT_EQ(error(0), "");
  EXPECT_EQ(error(1), dir / "a/empty.png: the file is empty");
  EXPECT_EQ(error(2), dir / "a/short.bmp: truncated BMP");
  EXPECT_EQ(error(3), dir / "a/text.jpg: not a JPEG, PNG, WebP, GIF, BMP or TIFF picture");
}

TEST_F(ImageFolder, ClassesOfTheModelDecideTheIndices) {
  Write("10/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("2/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  options.folder_classes = {"2", "3", "10"};
  EXPECT_EQ(ColumnValues(**Open(options), 1), (std::vector<double>{2, 0}));
  options.folder_classes = {"2", "3"};
  EXPECT_THAT(Message(Open(options).status()), HasSubstr("the folder '10' is none of the model's 2 classes (2, 3)"));
}

TEST_F(ImageFolder, PartsForTrainingAndEvaluation) {
  Write("train/a/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("val/a/2.bmp", Bmp(2, 2, {{1, 2, 3}}));
  EXPECT_TRUE(HasEvalImages(dir.path()));
  EXPECT_EQ((*Open(options))->Describe(0), dir / "train/a/1.bmp");
  options.eval_split = true;
  EXPECT_EQ((*Open(options))->Describe(0), dir / "val/a/2.bmp");
}

TEST_F(ImageFolder, AnOpenSizeIsAnErrorThatSaysWhatToDo) {
  Write("a/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  EXPECT_EQ(Message(Open({.images = {.problem = "say how large"}}).status()), dir.path() + ": say how large");
}

TEST_F(ImageFolder, SplitsByNameSoThatOtherSamplesMoveNone) {
  for (int i = 0; i < 60; ++i) Write(StrCat("a/", i, ".bmp"), Bmp(2, 2, {{1, 2, 3}}));
  const auto names = [](const Dataset& data) {
    std::set<std::string> held_out;
    for (const int64_t i : SplitByHash(data, 0.3, 7).eval) held_out.insert(data.Describe(i));
    return held_out;
  };
  const std::set<std::string> before = names(**Open(options));
  Write("a/0000.bmp", Bmp(2, 2, {{1, 2, 3}}));
  std::set<std::string> after = names(**Open(options));
  after.erase(dir / "a/0000.bmp");
  EXPECT_EQ(after, before);
}

class AugmentedPictures : public ImageFolder {
 protected:
  AugmentedPictures() {
    for (int i = 0; i < 12; ++i) {
      const auto c = static_cast<uint8_t>(20 * i);
      Write(StrCat(i % 3, "/", i, ".bmp"), Bmp(9, 7, {{c, 10, 20}, {200, c, 3}, {7, 77, c}, {c, c, 0}, {90, 1, 2}}));
    }
    options.images = {.width = 5, .height = 4, .augment = {.crop_min = 0.3, .crop_max = 1, .flip = 0.5, .color = 0.4}};
  }
  // Pixels, and the shares of the three classes, from the first sample of `load` to the end of the second epoch.
  static std::vector<double> Read(const std::shared_ptr<const Dataset>& data, LoaderOptions load) {
    load.shuffle = true, load.augment = true, load.epochs = 2 - load.first_epoch;
    const FeedSpec pixels{
        .feed = "x", .columns = {0}, .sample = {DType::kFloat32, {3, 4, 5}}, .mixing = Mixing::kPixels};
    const FeedSpec shares{
        .feed = "label", .columns = {1}, .sample = {DType::kFloat32, {3}}, .one_hot = true, .mixing = Mixing::kShares};
    auto loader = *Loader::Create(data, {pixels, shares}, load);
    std::vector<double> all;
    while (const Batch* batch = *loader->Next()) {
      for (int64_t i = 0; i < std::ssize(batch->samples); ++i) {
        for (int64_t j = 0; j < 60; ++j) all.push_back(batch->tensors[0].At(60 * i + j));
        for (int64_t j = 0; j < 3; ++j) all.push_back(batch->tensors[1].At(3 * i + j));
      }
    }
    return all;
  }
  static constexpr int kEach = 63;  // values of a sample
};

// The same augmented pixels, whoever makes the batches and wherever they begin.
TEST_F(AugmentedPictures, DoNotDependOnWorkersBatchesOrResume) {
  const std::shared_ptr<const Dataset> data = *Open(options);
  const std::vector<double> expected = Read(data, {.batch_size = 4, .num_workers = 0});
  EXPECT_EQ(Read(data, {.batch_size = 4, .num_workers = 1}), expected);
  EXPECT_EQ(Read(data, {.batch_size = 3, .num_workers = 4}), expected);
  EXPECT_EQ(Read(data, {.batch_size = 3, .num_workers = 1, .max_workers = 4}), expected);
  const std::vector<double> resumed =
      Read(data, {.batch_size = 2, .num_workers = 2, .first_epoch = 1, .first_sample = 6});
  EXPECT_EQ(resumed, std::vector<double>(expected.end() - 6 * kEach, expected.end()));
  const std::vector<double> first(expected.begin(), expected.begin() + 12 * kEach),
      second(expected.begin() + 12 * kEach, expected.end());
  EXPECT_NE(std::multiset<double>(first.begin(), first.end()), std::multiset<double>(second.begin(), second.end()));
}

// Samples of one batch are mixed, whoever makes it.
TEST_F(AugmentedPictures, AreMixedAlikeByEveryWorker) {
  const std::shared_ptr<const Dataset> data = *Open(options);
  for (const MixOptions mix : {MixOptions{.mixup = 1}, {.cutmix = 1}, {.mixup = 0.2, .cutmix = 1}}) {
    LoaderOptions load{.batch_size = 4, .mix = mix, .num_workers = 0};
    load.mix.height = 4, load.mix.width = 5;
    const std::vector<double> expected = Read(data, load);
    EXPECT_NE(expected, Read(data, {.batch_size = 4, .num_workers = 0}));
    load.num_workers = 4;
    EXPECT_EQ(Read(data, load), expected);
    load.first_epoch = 1, load.first_sample = 4;
    EXPECT_EQ(Read(data, load), std::vector<double>(expected.end() - 8 * kEach, expected.end()));
  }
}

TEST_F(AugmentedPictures, ACacheChangesNothing) {
  const std::vector<double> expected = Read(*Open(options), {.batch_size = 4, .num_workers = 0});
  for (const int64_t bytes : {1 << 20, 2 * 9 * 7 * 3}) {  // all pictures, or two
    options.images.cache = std::make_shared<CacheBudget>(bytes);
    const auto cached = CacheInRam(*Open(options), {0}, options.images.cache);
    EXPECT_EQ(Read(cached, {.batch_size = 3, .num_workers = 4}), expected);
    EXPECT_EQ(options.images.cache->Take(1), bytes > 1000);
  }
}

TEST_F(AugmentedPictures, ACacheReadsNoFileTwice) {
  for (const bool augment : {true, false}) {
    if (!augment) options.images.augment = {};
    options.images.cache = std::make_shared<CacheBudget>(1 << 20);
    const auto cached = CacheInRam(*Open(options), {0, 1}, options.images.cache);
    const std::vector<double> first = ColumnValues(*cached, 0);
    const std::string name = cached->Describe(0), content = ReadFile(name);
    fs::resize_file(name, 1);
    EXPECT_EQ(ColumnValues(*cached, 0), first);
    std::ofstream(name, std::ios::binary) << content;
  }
  EXPECT_EQ(CacheInRam(*Open(options), {1}, options.images.cache), nullptr) << "labels are in memory";
}

TEST_F(ImageFolder, FoldersOfClassesAreFoundBelow) {
  Write("pets/data/cat/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("pets/data/ape/2.bmp", Bmp(2, 2, {{4, 5, 6}}));
  const auto data = Open(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT((*data)->columns()[1].classes, ElementsAre("ape", "cat"));
}

TEST_F(ImageFolder, TablesNamePicturesBesideThem) {
  Write("img/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("img/2.bmp", Bmp(2, 2, {{4, 5, 6}}));
  Write("with.csv", "file,kind\nimg/2.bmp,cat\nimg/1.bmp,ape\nimg/3.bmp,ape\n");
  Write("without.csv", "cat,img/2.bmp\nape,img/1.bmp\n");
  const auto data = OpenDataset(dir / "with.csv", options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->columns()[0].name, "file");
  EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{1, 0, 0}));
  std::vector<std::byte> out(12);
  EXPECT_TRUE((*data)->Read(0, 0, out).ok());
  EXPECT_EQ(static_cast<int>(out[0]), 4);
  EXPECT_EQ(Message((*data)->Read(2, 0, out)),
            StrCat(dir / "with.csv", ": row 4: ", dir / "img/3.bmp", ": No such file or directory"));
  const auto plain = OpenDataset(dir / "without.csv", options);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ((*plain)->columns()[0].sample.shape, (Shape{3, 2, 2}));
  EXPECT_EQ(ColumnValues(**plain, 1), (std::vector<double>{1, 0}));
}

TEST_F(ImageFolder, TablesNamePicturesWithoutEnding) {
  for (const char* name : {"train/7f.bmp", "train/a0.bmp", "plots/0.bmp", "plots/1.bmp"})
    Write(name, Bmp(2, 2, {{static_cast<uint8_t>(name[7]), 5, 6}}));
  Write("labels.csv", "id,breed\na0,pug\n7f,beagle\n");
  Write("names.csv", "a0.bmp,1\n7f.bmp,0\n");
  Write("rows.jsonl", "{\"id\": \"a0\", \"breed\": \"pug\"}\n{\"id\": \"7f\", \"breed\": \"beagle\"}\n");
  for (const char* table : {"labels.csv", "names.csv", "rows.jsonl"}) {
    const auto data = OpenDataset(dir / table, options);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{1, 0})) << table;
    std::vector<std::byte> out(12);
    ASSERT_TRUE((*data)->Read(0, 0, out).ok()) << table;
    EXPECT_EQ(static_cast<char>(out[0]), '0') << table;
  }
  // Values that repeat are no names of files.
  Write("flags.csv", "flag,kind\n0,1\n1,0\n1,1\n");
  EXPECT_EQ((*OpenDataset(dir / "flags.csv", options))->columns()[0].sample.shape, Shape{});
}

TEST_F(ImageFolder, TablesAmongThePicturesAreFound) {
  Write("train/1.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("train/2.bmp", Bmp(2, 2, {{4, 5, 6}}));
  Write("train/metadata.jsonl",
        "{\"file_name\": \"2.bmp\", \"kind\": \"cat\"}\n{\"file_name\": \"1.bmp\", \"kind\": \"ape\"}\n");
  for (const std::string& folder : {dir.path(), dir / "train", dir / "train/metadata.jsonl"}) {
    const auto data = OpenDataset(folder, options);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->columns()[0].sample.shape, (Shape{3, 2, 2}));
    EXPECT_THAT((*data)->columns()[1].classes, ElementsAre("ape", "cat"));
    EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{1, 0}));
  }
  std::filesystem::remove(dir / "train/metadata.jsonl");
  Write("train/metadata.csv", "file_name,kind\n1.bmp,dog\n");
  EXPECT_THAT((*OpenDataset(dir / "train", options))->columns()[1].classes, ElementsAre("dog"));
}

class PicturePairs : public ImageFolder {
 protected:
  const std::vector<FolderColumn> folders = {{.name = "images/", .folder = "images/"},
                                             {.name = "mask", .folder = "masks", .kind = PictureKind::kMask}};
};

TEST_F(PicturePairs, MasksKeepTheirClasses) {
  Write("images/a.bmp", Bmp(4, 4, {{1, 2, 3}}));
  Write("masks/a.bmp", MaskBmp(4, 4, {0, 0, 9, 9, 0, 0, 9, 9, 5, 5, 7, 7, 5, 5, 7, 7}));
  const auto data = OpenPicturePairs(dir.path(), folders, options.images);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->columns()[1].sample, (Type{DType::kUInt8, {2, 2}}));
  EXPECT_THAT(ColumnValues(**data, 1), ElementsAre(0, 9, 5, 7));
  EXPECT_FALSE((*data)->columns()[1].image);
}

TEST_F(PicturePairs, AreNoFoldersOfClasses) {
  Write("JPEGImages/a.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("SegmentationClass/a.bmp", MaskBmp(2, 2, {1, 1, 1, 1}));
  EXPECT_THAT(Message(Open(options).status()),
              HasSubstr("`input` NAME=JPEGImages `label` NAME=SegmentationClass pairs pictures with their masks"));
}

TEST_F(PicturePairs, MasksMayHaveAnEndingMore) {
  Write("images/a.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("images/a_b.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("masks/a_mask.bmp", MaskBmp(2, 2, {1, 1, 1, 1}));
  Write("masks/a_b_mask.bmp", MaskBmp(2, 2, {2, 2, 2, 2}));
  const auto data = OpenPicturePairs(dir.path(), folders, options.images);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ColumnValues(**data, 1), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  Write("masks/c.bmp", MaskBmp(2, 2, {2, 2, 2, 2}));
  EXPECT_THAT(Message(OpenPicturePairs(dir.path(), folders, options.images).status()),
              HasSubstr("there is no picture a.* in"));
}

// The color of a pixel is its class, so pictures that are moved otherwise than their masks show.
TEST_F(PicturePairs, PicturesAndMasksMoveTogether) {
  std::vector<std::array<uint8_t, 3>> colors;
  std::vector<uint8_t> classes;
  for (int i = 0; i < 64; ++i) {
    const auto value = static_cast<uint8_t>(i % 8 < 4 ? (i < 32 ? 10 : 60) : (i < 32 ? 120 : 240));
    colors.push_back({value, value, value});
    classes.push_back(value);
  }
  Write("images/a.bmp", Bmp(8, 8, colors));
  Write("masks/a.bmp", MaskBmp(8, 8, classes));
  options.images = {
      .width = 16, .height = 16, .augment = {.crop_min = 0.3, .crop_max = 1, .flip = 0.5, .vertical_flip = 0.5}};
  const auto data = *OpenPicturePairs(dir.path(), folders, options.images);
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    std::vector<std::byte> picture(3 * 256), mask(256);
    const ReadPass pass{.augment = true, .seed = 1, .epoch = epoch};
    ASSERT_TRUE(data->Read(0, 0, pass, picture).ok() && data->Read(0, 1, pass, mask).ok());
    int equal = 0;
    for (int i = 0; i < 256; ++i) equal += picture[i] == mask[i];
    EXPECT_GT(equal, 150) << epoch;  // all but the borders, which are mixed
  }
}

TEST_F(PicturePairs, MissingCounterpartsAreErrors) {
  Write("images/a.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("images/b.bmp", Bmp(2, 2, {{1, 2, 3}}));
  Write("masks/a.bmp", MaskBmp(2, 2, {0, 1, 2, 3}));
  EXPECT_THAT(Message(OpenPicturePairs(dir.path(), folders, options.images).status()),
              HasSubstr("images/b.bmp: there is no picture b.* in "));
  Write("masks/b.bmp", Bmp(2, 2, {{1, 2, 3}}));
  std::vector<std::byte> out(4);
  EXPECT_THAT(Message((*OpenPicturePairs(dir.path(), folders, options.images))->Read(1, 1, out)),
              HasSubstr("a mask must have a palette or be grey, this picture has colors"));
  Write("masks/b.bmp", Bmp(2, 2, {{7, 7, 7}}));  // as many programs store greys
  ASSERT_TRUE((*OpenPicturePairs(dir.path(), folders, options.images))->Read(1, 1, out).ok());
  EXPECT_EQ(std::to_integer<int>(out[0]), 7);
}

TEST_F(ImageFolder, PicturesKeepTheirSizes) {
  Write("a/0.bmp", Bmp(3, 1, {{1, 10, 0}, {2, 20, 0}, {3, 30, 0}}));
  Write("a/1.bmp", Bmp(2, 2, {{4, 40, 0}}));
  Write("a/2.bmp", Bmp(1, 1, {{5, 50, 0}}));
  Write("a/3.bmp", Bmp(1, 2, {{6, 60, 0}}));
  Write("a/4.bmp", "BM, and no more");
  const auto two = []() -> absl::StatusOr<int64_t> { return 2; };
  const auto data = Open({.images = {.sizes = PictureSizes{.find_multiple = two}}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->Extents(0), (PictureExtents{1, 3, 2, 4}));
  EXPECT_EQ((*data)->Extents(4), (PictureExtents{1, 1, 2, 2})) << "of the smallest";
  EXPECT_EQ((*data)->columns()[0].sample.shape, (Shape{3, 2, 4}));
  EXPECT_EQ((*data)->columns()[0].size_multiple, 2);
  EXPECT_EQ(SampleType(**data, 1, 0).shape, (Shape{3, 2, 2}));
  FeedSpec feed, label;
  feed.feed = "x";
  feed.columns = {0};
  feed.sample = {DType::kFloat32, {3, 2, 4}};
  feed.height_axis = 1;
  feed.padding = 9;
  feed.mean = {0, 1, 2};
  feed.std = {1, 1, 1};
  label.feed = "label";
  label.columns = {1};
  label.sample = {DType::kInt64, {}};
  const auto good = SubsetDataset(*data, {0, 1, 2, 3});
  const auto loader = Loader::Create(good, {feed, label}, {.batch_size = 4});
  ASSERT_TRUE(loader.ok()) << loader.status();
  const Batch* batch = *(*loader)->Next();
  EXPECT_THAT(batch->samples, ElementsAre(1, 2, 3, 0)) << "by size";
  ASSERT_EQ(batch->further.size(), 1);
  EXPECT_EQ(batch->tensors[0].shape(), (Shape{3, 3, 2, 2}));
  EXPECT_EQ(batch->tensors[1].shape(), (Shape{3}));
  const std::vector<double> small = batch->tensors[0].ToDoubles();
  EXPECT_THAT(std::vector(small.begin() + 12, small.end()),
              ElementsAre(5, 9, 9, 9, 49, 9, 9, 9, -2, 9, 9, 9, 6, 9, 6, 9, 59, 9, 59, 9, -2, 9, -2, 9));
  EXPECT_THAT(batch->further[0][0].ToDoubles(),
              ElementsAre(1, 2, 3, 9, 9, 9, 9, 9, 9, 19, 29, 9, 9, 9, 9, 9, -2, -2, -2, 9, 9, 9, 9, 9));
  const auto ordered = Loader::Create(good, {feed}, {.batch_size = 4, .keep_order = true});
  EXPECT_THAT((*(*ordered)->Next())->samples, ElementsAre(0, 1, 2, 3));
  const auto broken = Loader::Create(*data, {feed}, {.batch_size = 5});
  EXPECT_THAT(std::string(ToStd((*broken)->Next().status().message())), HasSubstr("4.bmp"));
}

std::string LittleEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> 8 * i));
  return text;
}

std::string Chunk(const std::string& name, const std::string& content) {
  return StrCat(name, LittleEndian(content.size(), 4), content, content.size() % 2 == 0 ? "" : std::string(1, '\0'));
}

// WebP keeps the orientation behind the pixels, and more behind them than is read for the size.
TEST_F(ImageFolder, SizesOfLargeFilesAreUpright) {
  const std::string size("\x2f\x02\x40\x00\x10", 5);  // 3 × 2
  const std::string black("\x07\x10\x11\x11\x88\x88\xfe\x07\x00", 9);
  const std::string turned("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0", 26);
  const std::string chunks =
      StrCat("WEBP", Chunk("VP8X", StrCat(LittleEndian(8, 4), LittleEndian(2, 3), LittleEndian(1, 3))),
             Chunk("VP8L", size + black), Chunk("XTRA", std::string(100000, 'x')), Chunk("EXIF", turned));
  Write("a/0.webp", StrCat("RIFF", LittleEndian(chunks.size(), 4), chunks));
  const auto data = Open({.images = {.sizes = PictureSizes{.multiple = 1}}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->Extents(0), (PictureExtents{3, 2, 3, 2}));
  std::vector<std::byte> pixels(18);
  const absl::Status read = (*data)->Read(0, 0, pixels);
  EXPECT_TRUE(read.ok()) << read;
}

TEST_F(ImageFolder, ManySizesArePaddedToFewer) {
  for (int i = 1; i <= 70; ++i) Write(StrCat("a/", i, ".bmp"), Bmp(i, 1, {{1, 1, 1}}));
  const auto one = []() -> absl::StatusOr<int64_t> { return 1; };
  const auto data = Open({.images = {.sizes = PictureSizes{.find_multiple = one}}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->columns()[0].size_multiple, 2);
  EXPECT_THAT((*data)->notes()[0], HasSubstr("70 sizes from 1 × 1 to 1 × 70, padded to multiples of 2 (35 sizes, "));
  const auto same = Open({.images = {.sizes = PictureSizes{.multiple = 1}}});
  EXPECT_EQ((*same)->columns()[0].size_multiple, 1) << "as in training";
  const auto none = []() -> absl::StatusOr<int64_t> { return Invalid("one size only"); };
  EXPECT_THAT(std::string(ToStd(Open({.images = {.sizes = PictureSizes{.find_multiple = none}}}).status().message())),
              HasSubstr("one size only"));
}

}  // namespace
}  // namespace onnxtrain
