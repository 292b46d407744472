// Runs the parts of a task on threads of their own.
#pragma once

#include <cstdint>
#include <functional>

namespace onnxtrain {

// Calls run(0) … run(parts - 1), each on another thread, part 0 on the calling one, and waits for all. Parts for which
// the system gives no thread run on the calling one as well. `run` must not throw.
void RunParts(int64_t parts, const std::function<void(int64_t part)>& run);

}  // namespace onnxtrain
