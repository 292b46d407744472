// Runs the readers of data over mutations of their seeds: 200 of each kind, 10,000 with ONNXTRAIN_LONG_TESTS=1. Meant
// for the sanitizers. The input that ends the program is left in /tmp/onnxtrain_fuzz_PID/input.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/fuzz/data_targets.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/seeds.h"

namespace onnxtrain {
namespace {

class Mutations : public testing::TestWithParam<FuzzTarget> {};

TEST_P(Mutations, AreReadOrRefused) {
  const std::filesystem::path seeds = SeedsFolder();
  ASSERT_FALSE(seeds.empty()) << "make_seeds.py";
  Mutator mutator(ReadSeeds(seeds / GetParam().name), 1);
  int accepted = 0;
  const int count = CountMutations();
  for (int i = 0; i < count; ++i) {
    const std::string text = mutator.Next();
    WriteScratch("input", text);
    accepted += GetParam().run(text);
  }
  RecordProperty("accepted", accepted);
  EXPECT_LT(accepted, count);  // damage is noticed in every format
  EXPECT_GT(accepted, 0);      // not all of it ends at the header
}

INSTANTIATE_TEST_SUITE_P(Targets, Mutations, testing::ValuesIn(DataFuzzTargets().begin(), DataFuzzTargets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace onnxtrain
