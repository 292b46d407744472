// The kinds of data that OpenDataset knows: how each is recognized from a path, and what opens it. A kind is one
// Source; a program that embeds the library registers kinds of its own.
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
  std::string name;  // letters, digits and '_'; a path may be given as "name:path", which asks no other source
  std::string what;  // for the message that lists all kinds: ".csv", "a folder with MNIST's files"
  // Files with these endings, in lower case ("x.CSV" has ".csv" too), and with `packed` also with .gz or .zst behind.
  std::vector<std::string> suffixes = {};
  bool packed = false;
  // Asked about paths that no source has a suffix for: by the first bytes of a file, or the names in a folder. Must not
  // fail, block, or read much. Null: such paths are not this kind.
  std::function<bool(const std::string& path)> recognizes = {};
  // Opens the data. Every error names the file, and the row, array or sample.
  std::function<absl::StatusOr<std::shared_ptr<const Dataset>>(const std::string& path, const DatasetOptions& options)>
      open;
  // A table of text: the label is by default the last column, and `header` applies.
  bool is_table = false;
  // Whether the path holds evaluation samples beside the training samples, which DatasetOptions::eval_split selects.
  std::function<bool(const std::string& path)> has_eval_samples = {};
  // Whether its samples are documents (a column "text") or single token ids, for language models.
  enum class Tokens : uint8_t { kNone, kDocuments, kIds } tokens = Tokens::kNone;
};

// Adds a source, which is asked before all that are there already. Fails on a name that is taken or malformed and on a
// source without `open`. Any thread may call at any time; its functions are called by any thread, and several at once.
// Sources are never removed: what the functions refer to must live until the process ends.
absl::Status RegisterSource(Source source);

struct FoundSource {
  std::shared_ptr<const Source> source;
  std::string path;  // without the name of the source
};
// Finds the source of a path: the one it names, else by suffix, else by content. Opens files at most to read their
// first bytes. Fails, listing the kinds, where there is none.
absl::StatusOr<FoundSource> FindSource(const std::string& path);

// The path without the name of a source: "csv:a.txt" is "a.txt".
std::string SourcePath(const std::string& path);

// Whether the path ends in one of the suffixes, in upper or lower case, with `packed` also before ".gz" or ".zst".
bool HasSuffix(std::string_view path, const std::vector<std::string>& suffixes, bool packed);

}  // namespace onnxtrain
