#include "frontend/data/bind/split.h"

#include <gtest/gtest.h>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

class SplitFolder : public testing::Test {
 protected:
  void Write(const std::string& name, std::string_view content = "a,b,y\n1,2,0\n") {
    std::filesystem::create_directories(std::filesystem::path(dir_ / name).parent_path());
    dir_.Write(name, content);
  }
  // "train.csv val.csv test.csv", with "-" for what there is not.
  std::string Find() const {
    const auto files = FindSplitFiles(dir_.path());
    if (!files.has_value()) return "";
    const auto name = [](const std::string& path) {
      return path.empty() ? "-" : std::filesystem::path(path).filename().string();
    };
    return StrCat(name(files->train), " ", name(files->eval), " ", name(files->test));
  }

  const TempDir dir_;
};

TEST_F(SplitFolder, ValidationComesBeforeTests) {
  Write("train.csv");
  EXPECT_EQ(Find(), "train.csv - -");
  Write("test.csv");
  EXPECT_EQ(Find(), "train.csv test.csv -");
  Write("val.csv");
  EXPECT_EQ(Find(), "train.csv val.csv -");
  Write("train.txt", "notes");
  EXPECT_EQ(Find(), "") << "which file trains is not clear";
}

TEST_F(SplitFolder, CompetitionsGiveTestsWithoutLabels) {
  Write("train.csv");
  Write("test.csv", "a,b\n1,2\n");
  Write("sample_submission.csv", "id,y\n0,0\n");
  EXPECT_EQ(Find(), "train.csv - test.csv");
  Write("valid.csv", "b,y,a\n1,2,3\n");
  EXPECT_EQ(Find(), "train.csv valid.csv test.csv");
}

TEST_F(SplitFolder, JsonLinesAndShards) {
  Write("train-00000-of-00001.jsonl", "{\"a\":1,\"y\":0}\n");
  Write("validation-00000-of-00001.jsonl", "{\"y\":1,\"a\":0}\n");
  Write("test-00000-of-00001.jsonl", "{\"a\":0}\n");
  EXPECT_EQ(Find(), "train-00000-of-00001.jsonl validation-00000-of-00001.jsonl test-00000-of-00001.jsonl");
}

TEST_F(SplitFolder, TokensAndTexts) {
  Write("train.bin", "abcd");
  Write("val.bin", "abcd");
  Write("meta.pkl", "x");
  EXPECT_EQ(Find(), "train.bin val.bin -");
}

TEST_F(SplitFolder, TheOnlyTable) {
  Write("heart.csv");
  Write("README.md", "x");
  EXPECT_EQ(Find(), "heart.csv - -");
  Write("more.csv");
  EXPECT_EQ(Find(), "");
}

TEST_F(SplitFolder, FoldersOfClassesComeFirst) {
  Write("train.csv");
  Write("train/0.png", "x");
  EXPECT_EQ(Find(), "train.csv - -");
  Write("train/cat/0.png", "x");
  EXPECT_EQ(Find(), "");
}

}  // namespace
}  // namespace onnxtrain
