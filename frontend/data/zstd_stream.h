// Decompresses Zstandard (RFC 8878).
#pragma once

#include "frontend/data/file.h"

namespace onnxtrain {

// A decompressed stream of `read`; any number of frames. Frames with windows of more than 128 MiB are refused.
ReadFn DecompressZstd(ReadFn read);

}  // namespace onnxtrain
