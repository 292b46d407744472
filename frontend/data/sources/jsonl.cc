#include "frontend/data/sources/jsonl.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json_column.h"
#include "frontend/data/sources/json_document.h"
#include "frontend/data/sources/json_reader.h"
#include "frontend/data/sources/line_reader.h"
#include "frontend/data/sources/memory_dataset.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/text_encoding.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

bool IsBlank(const std::string& line) { return line.find_first_not_of(" \t") == std::string::npos; }

bool HasKeys(const Json& value) { return value.is_object() && !value.empty(); }

void ListKeys(const Json& object, const std::string& prefix, std::vector<std::string>* keys) {
  for (const auto& [key, value] : object.items()) {
    if (HasKeys(value)) {
      ListKeys(value, StrCat(prefix, key, "."), keys);
    } else {
      keys->push_back(prefix + key);
    }
  }
}

class Lines {
 public:
  Lines(std::string path, const ReadFn& read, const DatasetOptions& options)
      : path_(std::move(path)),
        reader_(read),
        options_(options),
        limit_(options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit()) {}

  absl::StatusOr<std::shared_ptr<const Dataset>> Load() {
    std::string line;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader_.Next(&line));
      if (!more) break;
      if (!IsBlank(line)) RETURN_IF_ERROR(AddLine(line));
    }
    if (rows_.empty()) return Invalid("there are no lines");
    return Finish();
  }

 private:
  // Two characters of an array ("1,") become a number of 8 bytes.
  absl::Status AddLine(const std::string& line) {
    rows_.push_back(reader_.number());
    bytes_ += static_cast<int64_t>(4 * line.size() + sizeof(int64_t));
    RETURN_IF_ERROR(CheckMemory(bytes_, limit_));
    const absl::StatusOr<Json> json = ParseJsonObject(line);
    if (rows_.size() == 1 && !json.ok() && (line.starts_with('[') || line == "{"))
      return Invalid("row ", reader_.number(),
                     ": not a JSON object of one line (jq -c .[] FILE > data.jsonl writes those of an array as lines)");
    if (!json.ok()) return AddBad(StrCat("row ", reader_.number(), ": ", ToStd(json.status().message())));
    if (columns_.empty()) RETURN_IF_ERROR(FindDefaultLabel(*json));
    RETURN_IF_ERROR(AddValues(*json, ""));
    for (Entry& entry : columns_) {
      if (entry.last != reader_.number()) RETURN_IF_ERROR(entry.column->Add(reader_.number(), nullptr));
    }
    return absl::OkStatus();
  }

  // The values of an object within an object have both keys: {"meta": {"label": 1}} is "meta.label".
  absl::Status AddValues(const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
      if (HasKeys(value)) {
        RETURN_IF_ERROR(AddValues(value, StrCat(prefix, key, ".")));
        continue;
      }
      ASSIGN_OR_RETURN(Entry * entry, FindColumn(prefix + key));
      if (entry->last == reader_.number())
        return Invalid("row ", reader_.number(), ": the key '", entry->name, "' comes twice");
      entry->last = reader_.number();
      RETURN_IF_ERROR(entry->column->Add(reader_.number(), value));
    }
    return absl::OkStatus();
  }

  absl::Status AddBad(const std::string& why) {
    if (!options_.skip_bad) return Invalid(why);
    for (Entry& entry : columns_) entry.column->AddUnreadable(StrCat(path_, ": ", why));
    bad_.emplace_back(rows_.size() - 1, why);
    return absl::OkStatus();
  }

  // Labels are known by name; an index counts the keys of the first line.
  absl::Status FindDefaultLabel(const Json& first) {
    std::vector<std::string> keys;
    ListKeys(first, "", &keys);
    if (keys.empty()) return Invalid("row ", reader_.number(), ": the first object is empty");
    labels_ = options_.label;
    if (labels_.empty()) labels_ = {keys.back()};
    for (std::string& label : labels_) {
      const auto index = ParseInt(label);
      const bool is_index = index.ok() && *index >= 0 && *index < static_cast<int64_t>(keys.size());
      if (is_index && std::ranges::find(keys, label) == keys.end()) label = keys[*index];
    }
    return absl::OkStatus();
  }

  struct Entry {
    std::string name;
    std::unique_ptr<JsonColumn> column;
    int64_t last = 0;  // the row of its last value
  };

  // Keys that come late are missing in the lines before.
  absl::StatusOr<Entry*> FindColumn(const std::string& key) {
    const auto [at, added] = index_.try_emplace(key, columns_.size());
    if (!added) return &columns_[at->second];
    if (columns_.size() == kMaxColumns) return Invalid("there are more than ", kMaxColumns, " keys");
    columns_.push_back({key, MakeColumn(key)});
    Entry& entry = columns_.back();
    for (size_t i = 0, bad = 0; i + 1 < rows_.size(); ++i) {
      const bool is_bad = bad < bad_.size() && bad_[bad].first == i;
      if (is_bad) entry.column->AddUnreadable(StrCat(path_, ": ", bad_[bad++].second));
      if (!is_bad) RETURN_IF_ERROR(entry.column->Add(rows_[i], nullptr));
    }
    return &entry;
  }

  std::unique_ptr<JsonColumn> MakeColumn(const std::string& key) const {
    const bool is_label = std::ranges::find(labels_, key) != labels_.end();
    return std::make_unique<JsonColumn>(CsvColumnSpec{.path = path_, .name = key, .skip_bad = options_.skip_bad},
                                        MakeCsvColumn({.path = path_, .name = key}, is_label, options_));
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Finish() {
    for (const std::string& label : labels_) {
      if (!index_.contains(label) && !options_.label.empty())
        return absl::NotFoundError(StrCat("no line has the key '", label, "'"));
    }
    std::vector<NamedTensor> columns;
    for (Entry& entry : columns_) {
      ASSIGN_OR_RETURN(columns.emplace_back(), entry.column->Finish());
    }
    if (columns.empty()) return Invalid(bad_.empty() ? "there are no keys" : bad_.front().second);
    return MakeMemoryDataset(std::move(columns), [path = path_, rows = std::move(rows_)](int64_t i) {
      return StrCat(path, ": row ", rows[i]);
    });
  }

  static constexpr size_t kMaxColumns = 1 << 16;

  std::string path_;
  LineReader reader_;
  const DatasetOptions& options_;
  int64_t limit_, bytes_ = 0;
  std::vector<std::string> labels_;
  std::vector<Entry> columns_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<std::pair<size_t, std::string>> bad_;  // by sample
  std::vector<int64_t> rows_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> ReadJsonLines(const std::string& name, const ReadFn& read,
                                                             const DatasetOptions& options) {
  auto dataset = Lines(name, read, options).Load();
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(name, ": "));
  return dataset;
}

absl::StatusOr<ReadFn> OpenAsJsonLines(const std::string& path, int64_t limit, const std::string& encoding) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  auto lines = ReadAsJsonLines(DecodeText(file.reader(), encoding), HasSuffix(path, {".json"}, true), limit);
  if (!lines.ok()) return Annotate(lines.status(), StrCat(path, ": "));
  return lines;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenJsonLines(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const ReadFn read, OpenAsJsonLines(path, options.max_bytes, options.encoding));
  return ReadJsonLines(path, read, options);
}

}  // namespace onnxtrain
