// Ranks as threads of a test, each with Gloo connections.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/collectives.h"

namespace onnxtrain {

// Calls `work` on a thread for each rank. `file`: where they meet; `timeout`: seconds.
inline void RunRanks(const std::string& file, int size, const std::function<void(Collectives& ranks)>& work,
                     double timeout = 20) {
  std::filesystem::remove(file);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto met =
          CreateCollectives({.rank = rank, .size = size, .file = file, .interface = "127.0.0.1", .timeout = timeout});
      ASSERT_TRUE(met.ok()) << met.status();
      work(**met);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace onnxtrain
