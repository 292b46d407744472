// JSON lines from a pipe that may never end: samples come in windows, of which few are in memory.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Opens the lines of the standard input, `options.stream_window` samples at a time. The data set is as large as a
// window: pass e of Dataset::Read sees window e, which is read when it is first asked for; those before the last two
// are gone, but for the first one. So an epoch is a window, which the loader shuffles. Columns, their shapes and
// classes are those of the first window. Where the input ends within it, the samples are an ordinary data set in
// memory.
//
// Read fails with kOutOfRange where the input has ended before the window is full, and with kCancelled where
// ReadPass::stop is set while it waits. The input can be opened several times, from the first window on.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenJsonStream(const std::string& name, const DatasetOptions& options);

}  // namespace onnxtrain
