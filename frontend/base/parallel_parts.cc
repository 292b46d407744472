#include "frontend/base/parallel_parts.h"

#include <system_error>
#include <thread>
#include <vector>

namespace onnxtrain {
namespace {

// Starts a thread for each part from 1 on. Returns the first part for which no thread could be created.
int64_t StartThreads(int64_t parts, const std::function<void(int64_t)>& run, std::vector<std::thread>* threads) {
  for (int64_t part = 1; part < parts; ++part) {
    try {
      threads->emplace_back(run, part);
    } catch (const std::system_error&) {
      return part;
    }
  }
  return parts;
}

}  // namespace

void RunParts(int64_t parts, const std::function<void(int64_t part)>& run) {
  if (parts <= 0) return;
  std::vector<std::thread> threads;
  threads.reserve(parts);
  const int64_t started = StartThreads(parts, run, &threads);
  run(0);
  for (int64_t part = started; part < parts; ++part) run(part);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace onnxtrain
