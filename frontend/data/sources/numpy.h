// NumPy's files: arrays, .npy, versions 1 to 3
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), and archives of named arrays, .npz. The
// header of an array is a Python literal; the parser accepts its three keys only and bounds its size.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

enum class NpyText : uint8_t { kNone, kBytes, kUtf32 };

struct NpyHeader {
  Type type;  // type of the elements; texts are bytes whose last axis is one text
  NpyText text = NpyText::kNone;
  bool fortran = false;  // column-major: the first axis is innermost
  bool big_endian = false;
  int64_t offset = 0;  // offset of the first element in the stream
};

// Parses the text between the length field and the elements: "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),
// }". Fails, naming the descr, on element types other than numbers and texts (objects, records, complex).
absl::StatusOr<NpyHeader> ParseNpyDict(std::string_view text);

// Reads the start of a .npy stream, up to the elements.
absl::StatusOr<NpyHeader> ReadNpyHeader(const ReadFn& read);

// Reads a .npy stream of exactly `size` bytes into row-major order and native byte order. Rejects a header that
// declares another size, and an array of more than `max_bytes` (see DatasetOptions), before it allocates memory.
absl::StatusOr<HostTensor> ReadNpy(const ReadFn& read, int64_t size, int64_t max_bytes);

struct NpyArray {
  HostTensor tensor;
  std::optional<std::vector<std::string>> texts = {};  // used instead of `tensor`: one text per sample
};
// Like ReadNpy, for numbers or texts. ReadNpy and the functions below refuse texts.
absl::StatusOr<NpyArray> ReadNpyArray(const ReadFn& read, int64_t size, int64_t max_bytes);

// Reads a .npy stream of unknown length, at most `max_size` bytes, to its end: for compressed files.
absl::StatusOr<HostTensor> ReadNpyStream(const ReadFn& read, int64_t max_size, int64_t max_bytes);

// Reads the next array of a stream with *rest bytes left, and subtracts its bytes from *rest.
absl::StatusOr<HostTensor> ReadNextNpy(const ReadFn& read, int64_t* rest);

// Reads an array from the bytes of a .npy file.
absl::StatusOr<HostTensor> ReadNpyBytes(std::span<const uint8_t> bytes);

// Reads an array of any shape from a file. Errors name the file.
absl::StatusOr<HostTensor> ReadNpyFile(const std::string& path);

// Returns the bytes before the elements of a row-major little-endian array, a multiple of 64. Fails on bf16, which
// NumPy does not have.
absl::StatusOr<std::string> NpyPreamble(const Type& type);

// Opens an array as a data set of one column. Reads arrays up to 64 MiB, column-major and compressed ones (.npy.gz,
// .npy.zst) into memory, larger ones sample by sample.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpy(const std::string& path, const DatasetOptions& options);

// Decodes a text array (NumPy's types S and U) of shape [], [n] or [n, 1] to UTF-8, without trailing zeros. Fails on
// other shapes and, naming the text, on invalid Unicode.
absl::StatusOr<std::vector<std::string>> DecodeTexts(const NpyHeader& header, std::span<const std::byte> elements);

// Makes a column of an array of the file `path`. Texts become what they are in a CSV file; a column is a label if
// DatasetOptions::label contains it, or by its name if that is empty.
absl::StatusOr<NamedTensor> MakeArrayColumn(const std::string& path, const std::string& name, NpyArray array,
                                            const DatasetOptions& options);

using NamedArrays = std::vector<std::pair<std::string, HostTensor>>;

// Reads all arrays of an archive, of any shape, in the order of the file. Before allocating memory, checks the sizes in
// the zip directory and the .npy headers against each other, the maximal ratio of deflate, and `max_bytes` (0: half of
// the available memory). Errors name the file and the array.
absl::StatusOr<NamedArrays> ReadNpz(const std::string& path, int64_t max_bytes = 0);

// Like ReadNpz, for the arrays for which is_wanted(name).
absl::StatusOr<NamedArrays> ReadNpzWhere(const std::function<bool(const std::string& name)>& is_wanted,
                                         const std::string& path, int64_t max_bytes);

// Like ReadNpzWhere, for arrays of numbers or texts.
absl::StatusOr<std::vector<std::pair<std::string, NpyArray>>> ReadNpzArrays(
    const std::function<bool(const std::string& name)>& is_wanted, const std::string& path, int64_t max_bytes);

// Writes the arrays, stored or deflated, and replaces `path` atomically. Fails on bf16, which NumPy has no type for.
absl::Status WriteNpz(const std::string& path, const NamedArrays& arrays, bool compressed = false);

// Opens an archive as a data set with a column per array, in the order of the file, of the same leading extent. For
// archives above 64 MiB, stored arrays stay in the file and their checksums are not verified. From an archive of
// x_train, y_train, x_test, y_test or similar, opens one part (FindNpzPart) with the columns x and y.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpz(const std::string& path, const DatasetOptions& options);
// Returns true if the archive has a part for evaluation.
bool HasEvalArrays(const std::string& path);

}  // namespace onnxtrain
