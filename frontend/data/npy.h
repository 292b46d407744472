// NumPy's array files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
// The header is a Python literal; it is read by a bounded parser of ours that knows the three keys and nothing else.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"
#include "frontend/data/file.h"

namespace onnxtrain {

struct NpyHeader {
  Type type;
  bool fortran = false;  // stored with the first axis running fastest
  bool big_endian = false;
  int64_t offset = 0;  // where the elements begin in the stream
};

// The text between the length field and the elements: "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".
// A descr without an element type here (objects, strings, records, complex) fails by its name.
absl::StatusOr<NpyHeader> ParseNpyDict(std::string_view text);

// Reads from the start of a .npy stream up to the elements.
absl::StatusOr<NpyHeader> ReadNpyHeader(const ReadFn& read);

// Reads a whole .npy stream of exactly `size` bytes into C order and this machine's byte order. A header that declares
// another size, and an array of more than `max_bytes` (see DatasetOptions), are refused before memory is taken.
absl::StatusOr<HostTensor> ReadNpy(const ReadFn& read, int64_t size, int64_t max_bytes);

// What stands before the elements of a C-ordered little-endian array; 64-byte aligned. NumPy has no name for bf16:
// fails.
absl::StatusOr<std::string> NpyPreamble(const Type& type);

// A data set of one column. Arrays up to 64 MiB (and Fortran-ordered ones) are held in memory, larger ones are read
// from the file sample by sample: never mapped, so a file that shrinks is an error and not a signal.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpy(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
