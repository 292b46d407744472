// Runs the fuzzing targets over their seeds, damaged seeds, and the inputs that fuzzing found and that are mended
// since.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/seeds.h"
#include "tests/fuzz/targets.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// Returns the text cut at eight places, and with one byte changed at eight places.
std::vector<std::string> Damaged(const std::string& text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < 8; ++i) {
    const size_t at = text.size() * i / 8;
    out.push_back(text.substr(0, at));
    if (at < text.size()) out.push_back(text), out.back()[at] ^= static_cast<char>(1 << i);
  }
  return out;
}

class Fuzz : public testing::TestWithParam<FuzzTarget> {};

TEST_P(Fuzz, SeedsAreAcceptedAndDamageIsSurvived) {
  const fs::path seeds = SeedsFolder();
  ASSERT_FALSE(seeds.empty()) << "make_seeds.py";
  int accepted = 0, all = 0;
  for (const std::string& seed : ReadSeeds(seeds / GetParam().name)) {
    accepted += GetParam().run(seed);
    ++all;
    for (const std::string& text : Damaged(seed)) GetParam().run(text);
  }
  EXPECT_GT(accepted * 2, all);  // the other seeds are of forms that the reader refuses
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(FuzzTargets().begin(), FuzzTargets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

// The targets in which fuzzing found something: each has a folder in tests/fuzz/inputs.
constexpr std::string_view kFound[] = {"class_map", "graph", "import",     "merges",        "model",
                                       "npy",       "npz",   "preprocess", "sentence_piece"};

fs::path FoundFolder() { return RepoPath("tests/fuzz/inputs"); }

class Found : public testing::TestWithParam<std::string_view> {};

TEST_P(Found, IsSurvived) {
  const auto target = std::ranges::find(FuzzTargets(), GetParam(), &FuzzTarget::name);
  ASSERT_NE(target, FuzzTargets().end());
  const std::vector<std::string> inputs = ReadSeeds(FoundFolder() / GetParam());
  EXPECT_FALSE(inputs.empty());
  for (const std::string& text : inputs) target->run(text);
}

INSTANTIATE_TEST_SUITE_P(Targets, Found, testing::ValuesIn(kFound),
                         [](const auto& info) { return std::string(info.param); });

TEST(FoundFolders, AreAllListed) {
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(FoundFolder())) folders.push_back(entry.path().filename().string());
  std::ranges::sort(folders);
  EXPECT_TRUE(std::ranges::equal(folders, kFound)) << testing::PrintToString(folders);
}

}  // namespace
}  // namespace onnxtrain
