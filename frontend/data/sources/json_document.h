// Files that are one JSON document instead of lines.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Returns a stream of JSON lines, an object for each sample. Lines pass as they are. A document becomes lines where it
// is an array of objects; an object of which one value is such an array; or an object of columns: objects with the same
// number of rows, as pandas writes, its orient="split", or, with `lists_are_columns`, lists of the same length of at
// least two, beside which single values are left out. Other objects are a sample; other arrays, and objects of several
// lists of objects, are an error. `limit`: of bytes, as CheckMemory.
absl::StatusOr<ReadFn> ReadAsJsonLines(ReadFn read, bool lists_are_columns, int64_t limit);

}  // namespace onnxtrain
