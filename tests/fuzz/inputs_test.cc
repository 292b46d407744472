// Runs the fuzzing targets over their seeds, damaged seeds, and the inputs that fuzzing found and that are mended
// since.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "frontend/base/strings.h"
#include "tests/fuzz/targets.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSeeds = 60;  // of a target

struct Seeds {
  Seeds() {
    std::string name = (fs::temp_directory_path() / "onnxtrain_seeds_XXXXXX").string();
    folder = mkdtemp(name.data());
    const std::string script = ONNXTRAIN_SOURCE_DIR "/tests/fuzz/make_seeds.py";
    ok = std::system(StrCat("/usr/bin/python3 '", script, "' '", folder.string(), "'").c_str()) == 0;
  }
  ~Seeds() { fs::remove_all(folder); }
  fs::path folder;
  bool ok = false;
};

// Returns the contents of at most kMaxSeeds files, spread over the sorted folder.
std::vector<std::string> ReadFolder(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> contents;
  for (size_t i = 0; i < paths.size(); i += (paths.size() + kMaxSeeds - 1) / kMaxSeeds) {
    std::ifstream in(paths[i], std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return contents;
}

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
  static const Seeds seeds;
  ASSERT_TRUE(seeds.ok) << "make_seeds.py";
  int accepted = 0, all = 0;
  for (const std::string& seed : ReadFolder(seeds.folder / GetParam().name)) {
    accepted += GetParam().run(seed);
    ++all;
    for (const std::string& text : Damaged(seed)) GetParam().run(text);
  }
  EXPECT_GT(accepted * 2, all);  // the other seeds are of forms that the reader refuses
}

TEST_P(Fuzz, SurvivesWhatFuzzingFound) {
  const fs::path folder = fs::path(ONNXTRAIN_SOURCE_DIR) / "tests/fuzz/inputs" / GetParam().name;
  if (!fs::exists(folder)) return;
  for (const std::string& text : ReadFolder(folder)) GetParam().run(text);
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(FuzzTargets().begin(), FuzzTargets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace onnxtrain
