#include "frontend/data/sources/rows.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/file_arrays.h"
#include "frontend/data/sources/npy.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

constexpr size_t kMostArrays = 64;  // more are samples, not columns

std::vector<std::string> ListArrays(const std::string& path) {
  std::vector<std::string> arrays;
  for (const std::string& name : ListFolder(path).value_or(std::vector<std::string>()))
    arrays.push_back(std::filesystem::path(name).stem().string());
  return arrays;
}

class Renamed : public DatasetView {
 public:
  Renamed(std::shared_ptr<const Dataset> source, std::string name)
      : DatasetView(std::move(source)), columns_(source_->columns()) {
    columns_[0].name = std::move(name);
  }
  const std::vector<Column>& columns() const override { return columns_; }

 private:
  std::vector<Column> columns_;
};

}  // namespace

bool IsNpyFolder(const std::string& path) {
  const auto names = ListFolder(path);
  const auto is_npy = [](const std::string& name) { return name.ends_with(".npy"); };
  return names.ok() && !names->empty() && names->size() <= kMostArrays && std::ranges::all_of(*names, is_npy);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpyFolder(const std::string& path, const DatasetOptions& options) {
  const std::vector<std::string> arrays = ListArrays(path);
  const auto part = FindNpzPart(arrays, options.eval_split);
  std::shared_ptr<const Dataset> joined;
  for (const std::string& array : arrays) {
    if (part.has_value() && !part->contains(array)) continue;
    const std::string file = StrCat(path, "/", array, ".npy");
    ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> column, OpenNpy(file, options));
    if (part.has_value()) column = std::make_shared<Renamed>(std::move(column), part->at(array));
    if (joined != nullptr && column->size() != joined->size())
      return Invalid(file, ": has ", column->size(), " samples, but ", joined->columns()[0].name, " has ",
                     joined->size());
    joined = joined == nullptr ? std::move(column) : JoinColumns(std::move(joined), std::move(column), -1);
  }
  if (joined == nullptr) return Invalid(path, ": the folder holds no .npy file");
  return joined;
}

bool HasEvalNpyFiles(const std::string& path) { return FindNpzPart(ListArrays(path), true).has_value(); }

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
