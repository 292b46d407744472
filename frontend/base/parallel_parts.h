// Runs the parts of a task on new threads.
#pragma once

#include <cstdint>
#include <functional>

namespace onnxtrain {

// Calls run(0) … run(parts - 1) concurrently and waits for all of them. Part 0 runs on the calling thread, as do parts
// for which no thread can be created. `run` must not throw.
void RunParts(int64_t parts, const std::function<void(int64_t part)>& run);

}  // namespace onnxtrain
