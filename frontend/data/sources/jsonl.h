// JSON lines: one object per line (https://jsonlines.org).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {

// Opens a .jsonl, .ndjson or .json file. Columns are the keys in order of appearance. Numbers, true, false and strings
// follow the rules of CSV fields for labels, categories, text and missing values; arrays of numbers, also nested, are
// tensors of one shape. null and absent keys are missing values. Without DatasetOptions::label the label is the last
// key of the first line.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenJsonLines(const std::string& path, const DatasetOptions& options);

// Returns a stream of the lines of such a file; a JSON document is converted to lines.
absl::StatusOr<ReadFn> OpenAsJsonLines(const std::string& path, const DatasetOptions& options);

// Like OpenJsonLines, from a stream. Messages name `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> ReadJsonLines(const std::string& name, const ReadFn& read,
                                                             const DatasetOptions& options);

// Collects the values of one key into a tensor. The first value other than null decides between arrays and the types of
// a CSV column.
class JsonColumn {
 public:
  // `is_text`: the column is text, and arrays and objects are their JSON.
  JsonColumn(CsvColumnSpec spec, std::unique_ptr<CsvColumn> values, bool is_text = false);
  ~JsonColumn();

  // Adds the value of line `row`; null is a missing value. Fails only if the whole file is unusable.
  absl::Status Add(int64_t row, const OrderedJson& value);
  // Adds the text of a list or object. Requires a column of text.
  absl::Status AddText(int64_t row, const std::string& json);
  void AddUnreadable(std::string why);
  absl::StatusOr<NamedTensor> Finish();

 private:
  class Arrays;
  struct Pending {
    int64_t row;
    std::string why;  // "" for a missing value
  };
  std::string WhyNotFirst(const OrderedJson& value) const;
  absl::Status RefuseFirst(int64_t row, const OrderedJson& value, const std::string& why);
  std::string Locate(int64_t row, const std::string& why) const;
  absl::Status Decide(const OrderedJson& first);
  std::string WhyNotSingle(const OrderedJson& value) const;
  absl::Status AddValue(int64_t row, const OrderedJson& value);

  CsvColumnSpec spec_;
  std::unique_ptr<CsvColumn> values_;  // collects single values
  std::unique_ptr<Arrays> arrays_;     // collects arrays
  bool is_text_ = false, decided_ = false;
  std::vector<Pending> pending_;  // samples before the type is decided
  int64_t samples_ = 0;
  std::string problem_;
  std::map<int64_t, std::string> unreadable_;
};

}  // namespace onnxtrain
