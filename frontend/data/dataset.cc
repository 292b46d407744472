#include "frontend/data/dataset.h"

#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/data/csv.h"
#include "frontend/data/idx.h"
#include "frontend/data/memory_dataset.h"
#include "frontend/data/npy.h"
#include "frontend/data/npz.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

Opened OpenNpz(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadNpz(path, options.max_bytes));
  std::vector<NamedTensor> columns;
  for (auto& [name, tensor] : arrays) columns.push_back({std::move(name), std::move(tensor)});
  auto dataset = MakeMemoryDataset(std::move(columns), [path](int64_t i) { return StrCat(path, ": sample ", i); });
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

Opened OpenCommas(const std::string& path, const DatasetOptions& options) { return OpenCsv(path, ',', options); }
Opened OpenTabs(const std::string& path, const DatasetOptions& options) { return OpenCsv(path, '\t', options); }

struct Format {
  const char* suffix;
  Opened (*open)(const std::string& path, const DatasetOptions& options);
};
constexpr Format kFormats[] = {
    {".npz", OpenNpz},       {".npy", OpenNpy},  {".csv", OpenCommas},
    {".csv.gz", OpenCommas}, {".tsv", OpenTabs}, {".tsv.gz", OpenTabs},
};

}  // namespace

Opened OpenDataset(const std::string& path, const DatasetOptions& options) {
  if (path.empty()) return Invalid("the path of the data is empty");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return OpenMnistFolder(path, options);
  RETURN_IF_ERROR(RegularFileSize(path).status());
  for (const Format& format : kFormats) {
    if (path.ends_with(format.suffix)) return format.open(path, options);
  }
  if (IsIdx(path)) return OpenIdx(path, options);
  return Invalid(path, ": not a known kind of data (.npz, .npy, .csv, .tsv, idx, or a folder with MNIST's files)");
}

}  // namespace onnxtrain
