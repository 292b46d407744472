#include "frontend/data/sources/stdin.h"

#include <algorithm>
#include <mutex>

#include "frontend/base/status.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json_stream.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/memory_dataset.h"
#include "frontend/data/sources/npy.h"
#include "frontend/data/sources/pipe.h"
#include "frontend/data/text/text_encoding.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kNpy = "\x93NUMPY";

// Reads until `out` is full or the input ends.
absl::StatusOr<size_t> ReadDescriptor(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    ASSIGN_OR_RETURN(const size_t got, ReadStdin(out.subspan(done)));
    if (got == 0) break;
    done += got;
  }
  return done;
}

// A pipe can be read once, and a data set is opened several times (to find its label, to split it).
absl::StatusOr<const std::string*> ReadOnce(int64_t limit) {
  static auto* mutex = new std::mutex;
  static auto* bytes = new absl::StatusOr<std::string>(absl::UnknownError(""));
  std::lock_guard lock(*mutex);
  if (absl::IsUnknown(bytes->status())) *bytes = ReadAll(ReadDescriptor, limit);
  RETURN_IF_ERROR(bytes->status());
  return &**bytes;
}

ReadFn MakeReader(const std::string& bytes) {
  return [rest = std::as_bytes(std::span(bytes))](std::span<std::byte> out) mutable -> absl::StatusOr<size_t> {
    const size_t size = std::min(out.size(), rest.size());
    std::copy_n(rest.begin(), size, out.begin());
    rest = rest.subspan(size);
    return size;
  };
}

absl::StatusOr<std::shared_ptr<const Dataset>> ReadArrays(const std::string& name, const std::string& bytes) {
  std::vector<NamedTensor> columns;
  const ReadFn read = MakeReader(bytes);
  for (int64_t rest = static_cast<int64_t>(bytes.size()); rest > 0;) {
    auto array = ReadNextNpy(read, &rest);
    if (!array.ok()) return Annotate(array.status(), StrCat("array ", columns.size(), ": "));
    columns.push_back({StrCat(columns.size()), *std::move(array)});
  }
  return MakeMemoryDataset(std::move(columns), [name](int64_t i) { return StrCat(name, ": sample ", i); });
}

}  // namespace

bool IsStdin(const std::string& path) { return path == "-"; }

absl::StatusOr<std::shared_ptr<const Dataset>> OpenBytes(const std::string& name, const std::string& bytes,
                                                         const DatasetOptions& options) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return Invalid(name, ": there are no samples");
  if (bytes[first] == '{') return ReadJsonLines(name, DecodeText(MakeReader(bytes), options.encoding), options);
  if (!bytes.starts_with(kNpy)) return ReadCsv(name, MakeReader(bytes), ',', options);
  auto dataset = ReadArrays(name, bytes);
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(name, ": "));
  return dataset;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenStdin(const std::string&, const DatasetOptions& options) {
  if (options.stream_window > 0) {
    const auto first = PeekStdin();
    if (!first.ok()) return Annotate(first.status(), StrCat(kStdinName, ": "));
    if (*first == '{') return OpenJsonStream(kStdinName, options);
  }
  const auto bytes = ReadOnce(options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit());
  if (!bytes.ok())
    return Annotate(bytes.status(), StrCat(kStdinName, ", which is read to its end before training (JSON lines with ",
                                           "`max_steps` and without `epochs` are read as they come): "));
  return OpenBytes(kStdinName, **bytes, options);
}

}  // namespace onnxtrain
