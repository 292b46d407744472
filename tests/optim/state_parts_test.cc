#include "optim/step/state.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(StateParts, NamesAreReadBack) {
  for (const std::string tensor : {"w", "", "a@1:2:3", "$m:x/y@"}) {
    const ElementRuns runs{.begin = 128, .length = 64, .stride = 256};
    const auto part = ParsePartName(PartName(tensor, runs));
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->tensor, tensor);
    EXPECT_EQ(part->runs, runs);
  }
  for (const char* name :
       {"", "w", "w@", "w@1", "w@1:2", "w@1:2:3:4", "w@1:2:x", "w@-1:2:3", "w@99999999999999999999:1:1"})
    EXPECT_FALSE(ParsePartName(name).ok()) << name;
}

TEST(StateParts, RunsAreWrittenWhereTheyBelong) {
  HostTensor whole({DType::kFloat32, {2, 6}});
  const HostTensor part = HostTensor::Filled({DType::kFloat32, {4}}, 1.F);
  ASSERT_TRUE(PutRuns(part, {.begin = 2, .length = 2, .stride = 6}, &whole).ok());
  for (int64_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole.At(i), i % 6 == 2 || i % 6 == 3) << i;
}

TEST(StateParts, RunsOutsideOfTheTensorAreRefused) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  const HostTensor part = HostTensor::Filled({DType::kFloat32, {4}}, 1.F);
  for (const ElementRuns runs : {ElementRuns{9, 4, 4},
                                 {0, 3, 4},
                                 {0, 0, 4},
                                 {0, 2, 1},
                                 {0, 2, 0},
                                 {3, 2, 8},
                                 {kLarge, 4, 4},
                                 {0, 2, kLarge},
                                 {0, kLarge, kLarge}}) {
    HostTensor whole({DType::kFloat32, {12}});
    EXPECT_FALSE(PutRuns(part, runs, &whole).ok()) << runs.begin << " " << runs.length << " " << runs.stride;
  }
  HostTensor other({DType::kFloat64, {12}});
  EXPECT_FALSE(PutRuns(part, {0, 4, 4}, &other).ok());
}

}  // namespace
}  // namespace onnxtrain
