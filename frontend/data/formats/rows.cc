#include "frontend/data/formats/rows.h"

#include "frontend/data/formats/csv.h"
#include "frontend/data/formats/idx.h"
#include "frontend/data/formats/npy.h"
#include "frontend/data/formats/npz.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

Opened OpenCommas(const std::string& path, const DatasetOptions& options) { return OpenCsv(path, ',', options); }
Opened OpenTabs(const std::string& path, const DatasetOptions& options) { return OpenCsv(path, '\t', options); }

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
  };
}

}  // namespace onnxtrain
