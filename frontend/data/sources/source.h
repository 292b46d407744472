// The registry of kinds of data that OpenDataset knows. A Source says how a kind is recognized by its path and how it
// is opened. Programs that embed the library may register their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

struct Source {
  std::string name;  // letters, digits and '_'; "name:path" selects this source
  std::string what;  // text in the list of all kinds: ".csv", "a folder with MNIST's files"; "": not listed
  // Suffixes of files in lower case (".csv" matches "x.CSV", too), with `packed` also followed by .gz or .zst.
  std::vector<std::string> suffixes = {};
  bool packed = false;
  // Recognizes paths whose suffix no source has, by the first bytes of a file or the names in a folder. Must not fail,
  // block, or read much. Null: no such path.
  std::function<bool(const std::string& path)> recognizes = {};
  // Opens the data. Errors name the file, and the row, array or sample.
  std::function<absl::StatusOr<std::shared_ptr<const Dataset>>(const std::string& path, const DatasetOptions& options)>
      open;
  // True for tables of text: the label is the last column by default, and `header` applies.
  bool is_table = false;
  // Returns true if the path also has evaluation samples, which DatasetOptions::eval_split selects.
  std::function<bool(const std::string& path)> has_eval_samples = {};
  // For language models: samples are documents (a column "text") or single token ids.
  enum class Tokens : uint8_t { kNone, kDocuments, kIds } tokens = Tokens::kNone;
};

// Adds a source, which is asked before those registered earlier. Fails on a name that is taken or malformed and on a
// source without `open`. Thread-safe; its functions are called by any thread, several at once. Sources are never
// removed: the objects that the functions refer to must live until the process ends.
absl::Status RegisterSource(Source source);

struct FoundSource {
  std::shared_ptr<const Source> source;
  std::string path;  // without the prefix "name:"
};
// Finds the source of a path: by its prefix, else by suffix, else by content. At most reads the first bytes of files.
// Fails, listing the kinds, if there is none.
absl::StatusOr<FoundSource> FindSource(const std::string& path);

// Returns the path without the name of a source: "a.txt" for "csv:a.txt".
std::string SourcePath(const std::string& path);

// Returns true if the path ends in one of the suffixes, ignoring case, with `packed` also before ".gz" or ".zst".
bool HasSuffix(std::string_view path, const std::vector<std::string>& suffixes, bool packed);

}  // namespace onnxtrain
