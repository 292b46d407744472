// Ranks of a test as threads.
#pragma once

#include <filesystem>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace onnxtrain {

// Returns train(rank) of all ranks, which run at the same time and meet in a file.
template <typename F>
std::vector<std::invoke_result_t<F, int>> RunRanks(const std::string& meeting, int size, const F& train) {
  std::filesystem::remove(meeting);
  std::vector<std::invoke_result_t<F, int>> results(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { results[rank] = train(rank); });
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace onnxtrain
