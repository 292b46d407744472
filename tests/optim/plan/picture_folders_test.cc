#include "optim/plan/folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "optim/plan/open_data.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class PictureFolders : public testing::Test {
 protected:
  PictureFolders() {
    std::string name = (fs::temp_directory_path() / "onnxtrain_folders_XXXXXX").string();
    root_ = mkdtemp(name.data());
    for (const char* folder : {"images", "masks"}) fs::create_directory(fs::path(root_) / folder);
  }
  ~PictureFolders() override { fs::remove_all(root_); }

  TrainConfig Config() const {
    TrainConfig config;
    config.data = root_;
    config.input = {"x=images/", "scale=2"};
    config.label = {"mask=masks/"};
    return config;
  }

  const FolderColumn images_{.name = "images/", .folder = "images/"};
  const FolderColumn masks_{.name = "mask", .folder = "masks/", .kind = PictureKind::kMask};
  std::string root_;
};

TEST_F(PictureFolders, InputsAndLabelsNameThem) {
  EXPECT_THAT(FindFolderColumns(Config(), std::nullopt, root_, true), ElementsAre(images_, masks_));
  EXPECT_THAT(FindFolderColumns(Config(), std::nullopt, root_, false), ElementsAre(images_));
  EXPECT_THAT(FindFolderColumns(Config(), std::nullopt, root_ + "/images", true), ElementsAre());
  EXPECT_THAT(WithLabelColumns(Config()).label, ElementsAre("mask"));
}

TEST_F(PictureFolders, EvaluationTakesThoseOfTraining) {
  TrainConfig config;
  config.data = root_;
  const Preprocess before{.pictures = DescribeImages({.width = 2, .height = 2}, 0, {images_, masks_})};
  EXPECT_THAT(FindFolderColumns(config, before, root_, true), ElementsAre(images_, masks_));
  EXPECT_THAT(FindFolderColumns(config, before, root_, false), ElementsAre(images_));
}

// Absolute folders need no root; columns of other data stay what they are.
TEST_F(PictureFolders, TheWorkingDirectoryIsTheirRootWithoutData) {
  TrainConfig config;
  config.input = {"x=" + root_ + "/images"};
  EXPECT_EQ(WithFolderRoot(config).data, ".");
  EXPECT_TRUE(IsSpecified(WithFolderRoot(config), "data"));
  config.input = {"x=pixels"};
  EXPECT_EQ(WithFolderRoot(config).data, "");
  config.label = {"kind"};
  EXPECT_THAT(WithLabelColumns(config).label, ElementsAre("kind"));
}

}  // namespace
}  // namespace onnxtrain
