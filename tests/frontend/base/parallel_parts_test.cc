#include "frontend/base/parallel_parts.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace onnxtrain {
namespace {

TEST(ParallelParts, RunsEachPartOnceOnItsThread) {
  for (const int64_t parts : {0, 1, 2, 7}) {
    std::vector<int> runs(parts);
    std::vector<std::thread::id> threads(parts);
    RunParts(parts, [&](int64_t part) {
      ++runs[part];
      threads[part] = std::this_thread::get_id();
    });
    EXPECT_EQ(runs, std::vector<int>(parts, 1));
    EXPECT_TRUE(parts == 0 || threads[0] == std::this_thread::get_id());
    EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), static_cast<size_t>(parts));
  }
}

}  // namespace
}  // namespace onnxtrain
