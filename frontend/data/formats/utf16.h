// Text in UTF-16, as spreadsheets on Windows save "Unicode text".
#pragma once

#include "frontend/data/file.h"

namespace onnxtrain {

// Returns a reader of the same text in UTF-8 where `read` starts with a byte order mark of UTF-16, and of the same
// bytes elsewhere. Half of a surrogate pair becomes U+FFFD.
ReadFn DecodeUtf16(ReadFn read);

}  // namespace onnxtrain
