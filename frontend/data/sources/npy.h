// NumPy's array files (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), versions 1 to 3. The
// header is a Python literal; the parser accepts its three keys only and bounds its size.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

enum class NpyText : uint8_t { kNone, kBytes, kUtf32 };

struct NpyHeader {
  Type type;  // of texts: bytes, whose last axis holds one text
  NpyText text = NpyText::kNone;
  bool fortran = false;  // column-major: the first axis is innermost
  bool big_endian = false;
  int64_t offset = 0;  // of the first element in the stream
};

// Parses the text between the length field and the elements: "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),
// }". Fails, naming the descr, on element types that are neither numbers nor texts (objects, records, complex).
absl::StatusOr<NpyHeader> ParseNpyDict(std::string_view text);

// Reads the start of a .npy stream, up to the elements.
absl::StatusOr<NpyHeader> ReadNpyHeader(const ReadFn& read);

// Reads a .npy stream of exactly `size` bytes into row-major order and native byte order. Rejects a header that
// declares another size, and an array of more than `max_bytes` (see DatasetOptions), before it allocates memory.
absl::StatusOr<HostTensor> ReadNpy(const ReadFn& read, int64_t size, int64_t max_bytes);

struct NpyArray {
  HostTensor tensor;
  std::optional<std::vector<std::string>> texts = {};  // instead of `tensor`: one for each sample
};
// The same of an array of numbers or texts; ReadNpy and the functions below refuse texts.
absl::StatusOr<NpyArray> ReadNpyArray(const ReadFn& read, int64_t size, int64_t max_bytes);

// Reads a .npy stream of at most `max_size` bytes up to its end, as packed files give it.
absl::StatusOr<HostTensor> ReadNpyStream(const ReadFn& read, int64_t max_size, int64_t max_bytes);

// Reads one array of a stream of several that has *rest more bytes, and takes its bytes off *rest.
absl::StatusOr<HostTensor> ReadNextNpy(const ReadFn& read, int64_t* rest);

// Reads an array from the bytes of a .npy file.
absl::StatusOr<HostTensor> ReadNpyBytes(std::span<const uint8_t> bytes);

// Reads an array of any shape from a file. Errors name the file.
absl::StatusOr<HostTensor> ReadNpyFile(const std::string& path);

// Returns the bytes before the elements of a row-major little-endian array, a multiple of 64. Fails on bf16, for which
// NumPy has no name.
absl::StatusOr<std::string> NpyPreamble(const Type& type);

// Opens an array as a data set of one column. Holds arrays up to 64 MiB and column-major ones in memory and reads
// larger ones sample by sample. Reads .npy.gz and .npy.zst into memory.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpy(const std::string& path, const DatasetOptions& options);

// Arrays of texts, NumPy's types S and U.

// Decodes the elements of an array [], [n] or [n, 1] of texts to UTF-8, without the zeros behind them. Fails on other
// shapes, naming the text on bytes that are no Unicode.
absl::StatusOr<std::vector<std::string>> DecodeTexts(const NpyHeader& header, std::span<const std::byte> elements);

// Makes a column of an array of the file `path`: of texts as of a CSV file, where a column is a label if
// DatasetOptions::label has it, or by its name where that is empty.
absl::StatusOr<NamedTensor> MakeArrayColumn(const std::string& path, const std::string& name, NpyArray array,
                                            const DatasetOptions& options);

}  // namespace onnxtrain
