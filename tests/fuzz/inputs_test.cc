// Runs the fuzzing targets over their seeds, damaged seeds, and the inputs that fuzzing found and that are mended
// since.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/fuzz/seeds.h"
#include "tests/fuzz/targets.h"

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

TEST_P(Fuzz, SurvivesWhatFuzzingFound) {
  const fs::path folder = fs::path(ONNXTRAIN_SOURCE_DIR) / "tests/fuzz/inputs" / GetParam().name;
  if (!fs::exists(folder)) return;
  for (const std::string& text : ReadSeeds(folder)) GetParam().run(text);
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(FuzzTargets().begin(), FuzzTargets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace onnxtrain
