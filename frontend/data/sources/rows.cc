#include "frontend/data/sources/rows.h"

#include <functional>
#include <optional>

#include "frontend/data/arrow/arrow_source.h"
#include "frontend/data/audio/sounds.h"
#include "frontend/data/image/picture_dataset.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/data/sources/token_shard.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

// Finds the column of paths to files for which is_wanted(path).
using FindPathsFn = std::function<std::optional<PathColumn>(bool (*is_wanted)(const std::string& path))>;

// Opens a table, with a column of paths as pictures or sounds if there is one.
Opened OpenWithFiles(const std::string& path, const OpenTableFn& open, const FindPathsFn& find,
                     const DatasetOptions& options) {
  if (const auto pictures = find(IsPictureFile); pictures.has_value())
    return OpenPictureTable(path, open, *pictures, options);
  if (const auto sounds = find(IsSoundPath); sounds.has_value()) return OpenAudioTable(path, open, *sounds, options);
  return open(options);
}

Opened OpenTable(const std::string& path, char separator, const DatasetOptions& options) {
  const auto open = [&](const DatasetOptions& own) { return OpenCsv(path, separator, own); };
  const auto find = [&](auto is_wanted) { return FindPathColumn(path, separator, options, is_wanted); };
  return OpenWithFiles(path, open, find, options);
}
Opened OpenJsonTable(const std::string& path, const DatasetOptions& options) {
  const auto open = [&](const DatasetOptions& own) { return OpenJsonLines(path, own); };
  return OpenWithFiles(
      path, open, [&](auto is_wanted) { return FindPathKey(path, options, is_wanted); }, options);
}
Opened OpenCommas(const std::string& path, const DatasetOptions& options) { return OpenTable(path, ',', options); }
Opened OpenTabs(const std::string& path, const DatasetOptions& options) { return OpenTable(path, '\t', options); }

}  // namespace

std::vector<Source> BuiltInSources() {
  return {
      {.name = "npz", .what = ".npz", .suffixes = {".npz"}, .open = OpenNpz, .has_eval_samples = HasEvalArrays},
      {.name = "npy", .what = ".npy", .suffixes = {".npy"}, .packed = true, .open = OpenNpy},
      {.name = "safetensors", .what = ".safetensors", .suffixes = {".safetensors"}, .open = OpenSafetensors},
      {.name = "csv",
       .what = ".csv",
       .suffixes = {".csv", ".data", ".dat"},
       .packed = true,
       .open = OpenCommas,
       .is_table = true},
      {.name = "tsv", .what = ".tsv", .suffixes = {".tsv", ".tab"}, .packed = true, .open = OpenTabs, .is_table = true},
      {.name = "jsonl",
       .what = ".jsonl",
       .suffixes = {".jsonl", ".ndjson", ".json"},
       .packed = true,
       .open = OpenJsonTable,
       .is_table = true},
      {.name = "tar",
       .what = ".tar (also shard-{000..099}.tar)",
       .suffixes = {".tar"},
       .open = OpenTar,
       .is_table = true},
      {.name = "parquet",
       .what = ".parquet, .arrow, .feather or a folder of them",
       .suffixes = {".parquet", ".arrow", ".feather"},
       .recognizes = IsArrowFolder,
       .open = OpenArrow,
       .is_table = true,
       .has_eval_samples = HasArrowEvalFiles},
      {.name = "cifar",
       .what = "a folder with CIFAR's binary files",
       .recognizes = IsCifarFolder,
       .open = OpenCifarFolder,
       .has_eval_samples = HasCifarEvalFiles},
      {.name = "text",
       .what = ".txt or a folder of them (lines:FILE: a document per line)",
       .suffixes = {".txt"},
       .packed = true,
       .recognizes = IsTextFolder,
       .open = OpenTextFiles,
       .tokens = Source::Tokens::kDocuments},
      {.name = "lines", .open = OpenTextLines, .tokens = Source::Tokens::kDocuments},
      {.name = "tokens",
       .what = ".bin (token shards; u16:FILE, u32:FILE)",
       .suffixes = {".bin"},
       .recognizes = IsShardFolder,
       .open = OpenShards,
       .tokens = Source::Tokens::kIds},
      {.name = "u16", .open = OpenShards16, .tokens = Source::Tokens::kIds},
      {.name = "u32", .open = OpenShards32, .tokens = Source::Tokens::kIds},
      {.name = "stdin", .what = "- (a pipe)", .recognizes = IsStdin, .open = OpenStdin, .is_table = true},
      {.name = "audio_folder",
       .what = "a folder of .wav or .flac files",
       .recognizes = IsAudioFolder,
       .open = OpenAudioFolder},
      {.name = "npy_folder",
       .what = "a folder of .npy files (x.npy, y.npy)",
       .recognizes = IsNpyFolder,
       .open = OpenNpyFolder,
       .has_eval_samples = HasEvalNpyFiles},
      {.name = "npz_folder", .what = "a folder of .npz files", .recognizes = IsNpzFolder, .open = OpenNpzFolder},
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
