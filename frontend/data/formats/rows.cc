#include "frontend/data/formats/rows.h"

#include "frontend/data/formats/csv.h"
#include "frontend/data/formats/idx.h"
#include "frontend/data/formats/npy.h"
#include "frontend/data/formats/npz.h"
#include "frontend/data/image/image_folder.h"
#include "frontend/data/image/picture_table.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

Opened OpenTable(const std::string& path, char separator, const DatasetOptions& options) {
  const std::optional<PathColumn> paths = FindPathColumn(path, separator, options.header);
  return paths.has_value() ? OpenPictureTable(path, separator, *paths, options) : OpenCsv(path, separator, options);
}
Opened OpenCommas(const std::string& path, const DatasetOptions& options) { return OpenTable(path, ',', options); }
Opened OpenTabs(const std::string& path, const DatasetOptions& options) { return OpenTable(path, '\t', options); }

}  // namespace

std::vector<Source> BuiltInSources() {
  return {
      {.name = "npz", .what = ".npz", .suffixes = {".npz"}, .open = OpenNpz},
      {.name = "npy", .what = ".npy", .suffixes = {".npy"}, .open = OpenNpy},
      {.name = "csv", .what = ".csv", .suffixes = {".csv"}, .packed = true, .open = OpenCommas, .is_table = true},
      {.name = "tsv", .what = ".tsv", .suffixes = {".tsv"}, .packed = true, .open = OpenTabs, .is_table = true},
      {.name = "idx", .what = "idx", .recognizes = IsIdx, .open = OpenIdx},
      {.name = "mnist",
       .what = "a folder with MNIST's files",
       .recognizes = IsMnistFolder,
       .open = OpenMnistFolder,
       .has_eval_samples = HasMnistEvalFiles},
      {.name = "images",
       .what = "a folder of pictures",
       .recognizes = IsImageFolder,
       .open = OpenImageFolder,
       .has_eval_samples = HasEvalImages},
  };
}

}  // namespace onnxtrain
