#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/data/sources/file_arrays.h"
#include "frontend/data/sources/memory_dataset.h"
#include "frontend/data/sources/npy.h"
#include "frontend/data/sources/npy_texts.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

Opened OpenInMemory(const std::string& path, const std::string& name, const ReadFn& read, int64_t size,
                    const DatasetOptions& options) {
  ASSIGN_OR_RETURN(NpyArray array, ReadNpyArray(read, size, options.max_bytes));
  DatasetOptions own = options;
  if (options.text.contains("0")) own.text.names.insert(name);  // by its index
  ASSIGN_OR_RETURN(NamedTensor column, MakeArrayColumn(path, name, std::move(array), own));
  return MakeMemoryDataset({std::move(column)}, [path](int64_t i) { return StrCat(path, ": sample ", i); });
}

Opened Open(const std::string& path, const DatasetOptions& options) {
  const std::string name = std::filesystem::path(path).stem().string();
  ASSIGN_OR_RETURN(const auto file, RandomFile::Open(path));
  const int64_t size = file->size();
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file->reader(0, size)));
  const auto bytes = static_cast<int64_t>(header.type.bytes());
  if (header.fortran || header.text != NpyText::kNone || bytes <= kHeldInMemory)
    return OpenInMemory(path, name, file->reader(0, size), size, options);
  if (header.offset + bytes != size)
    return Invalid("the header declares ", ToString(header.type), ", but the file has ", size, " bytes");
  return MakeFileDataset(
      path, file, {{.name = name, .type = header.type, .offset = header.offset, .big_endian = header.big_endian}});
}

// A packed array, which can be read from start to end alone.
Opened OpenPacked(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  const std::string name = std::filesystem::path(path).stem().stem().string();
  ASSIGN_OR_RETURN(HostTensor tensor, ReadNpyStream(file.reader(), file.max_size(), options.max_bytes));
  return MakeMemoryDataset({{name, tensor}}, [path](int64_t i) { return StrCat(path, ": sample ", i); });
}

}  // namespace

Opened OpenNpy(const std::string& path, const DatasetOptions& options) {
  RETURN_IF_ERROR(RegularFileSize(path).status());
  auto dataset =
      path.ends_with(".npy") || !HasSuffix(path, {".npy"}, true) ? Open(path, options) : OpenPacked(path, options);
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

}  // namespace onnxtrain
