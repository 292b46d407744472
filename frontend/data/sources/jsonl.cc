#include "frontend/data/sources/jsonl.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/json_scan.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/text_encoding.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

constexpr size_t kStep = 1 << 16;

constexpr int64_t kMemoryPerByte = 16;  // estimated memory of a parsed document

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kMark = "\xef\xbb\xbf";

// Returns a stream of `text` followed by `read`.
ReadFn StreamText(std::string text, ReadFn read = nullptr) {
  return [text = std::move(text), read = std::move(read),
          at = size_t{0}](std::span<std::byte> out) mutable -> absl::StatusOr<size_t> {
    const size_t done = std::min(out.size(), text.size() - at);
    std::memcpy(out.data(), text.data() + at, done);
    at += done;
    if (done == out.size() || read == nullptr) return done;
    ASSIGN_OR_RETURN(const size_t got, read(out.subspan(done)));
    return done + got;
  };
}

// Buffers the beginning of a stream until its kind is known.
class Head {
 public:
  explicit Head(ReadFn read) : read_(std::move(read)) {}

  // Reads until a non-blank character follows the first line, or to the end.
  absl::Status ReadFirstLine() {
    while (!ended_ && FindNext() == std::string::npos && IsObject()) RETURN_IF_ERROR(Fill());
    return absl::OkStatus();
  }
  bool IsDocument() const {
    const size_t begin = Begin();
    if (begin == std::string::npos) return false;
    if (text_[begin] == '[') return true;
    if (text_[begin] != '{') return false;
    const size_t end = std::min(text_.find('\n', begin), text_.size());
    const size_t last = text_.find_last_not_of(kBlanks, end - 1);
    return FindNext() == std::string::npos || text_[last] != '}';
  }
  absl::StatusOr<std::string> ReadWhole(int64_t limit) {
    ASSIGN_OR_RETURN(const std::string rest, ReadAll(read_, limit));
    return (text_ + rest).substr(Begin());
  }
  ReadFn Stream() { return StreamText(std::move(text_), std::move(read_)); }
  absl::Status Fill() {
    const size_t at = text_.size();
    text_.resize(at + kStep);
    ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(text_)).subspan(at)));
    text_.resize(at + got);
    ended_ = got < kStep;
    return absl::OkStatus();
  }

 private:
  size_t Begin() const { return text_.find_first_not_of(kBlanks, text_.starts_with(kMark) ? kMark.size() : 0); }
  bool IsObject() const { return Begin() == std::string::npos || text_[Begin()] == '{'; }
  // Returns the offset of the second non-blank line; npos if it is not read yet or there is none.
  size_t FindNext() const {
    const size_t begin = Begin();
    const size_t end = begin == std::string::npos ? begin : text_.find('\n', begin);
    return end == std::string::npos ? end : text_.find_first_not_of(kBlanks, end);
  }

  ReadFn read_;
  std::string text_;
  bool ended_ = false;
};

bool IsListOfObjects(const Json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, [](const Json& e) { return e.is_object(); });
}

// Returns true for orient="split" of pandas: {"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}.
bool IsSplit(const Json& object) {
  return object.contains("columns") && object["columns"].is_array() && object.contains("data") &&
         object["data"].is_array();
}

absl::StatusOr<Json> JoinSplit(const Json& object) {
  const Json &names = object["columns"], &data = object["data"];
  Json rows = Json::array();
  for (const Json& values : data) {
    if (!values.is_array() || values.size() != names.size())
      return Invalid("element ", rows.size(), " of 'data' is no list of ", names.size(), " values, as 'columns' has");
    Json row = Json::object();
    for (size_t c = 0; c < names.size(); ++c)
      row[names[c].is_string() ? names[c].get<std::string>() : WriteJson(names[c])] = values[c];
    rows.push_back(std::move(row));
  }
  return rows;
}

// Returns true if all values are lists, or objects of rows, of the same size: one per column.
bool IsByColumn(const Json& object, bool lists) {
  if (object.empty()) return false;
  const Json& first = object.front();
  if (!first.is_object() && !(lists && first.is_array())) return false;
  if (first.size() < 2) return false;
  // A single sample with one input is no table.
  if (object.size() == 1 && first.is_array() && !first.front().is_array()) return false;
  return std::ranges::all_of(
      object, [&](const Json& column) { return column.type() == first.type() && column.size() == first.size(); });
}

Json JoinColumns(Json object) {
  std::vector<Json> rows(object.front().size(), Json::object());
  for (auto& [name, column] : object.items()) {
    size_t row = 0;
    for (Json& value : column) rows[row++][name] = std::move(value);
  }
  return rows;
}

// Returns the lists of an object without single values, which describe the whole: a name, a version.
Json WithoutScalars(const Json& object) {
  Json lists = Json::object();
  for (const auto& [name, value] : object.items()) {
    if (value.is_structured()) lists[name] = value;
  }
  return lists;
}

// Returns the keys of an object whose values are lists of objects.
std::vector<std::string> FindLists(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) {
    if (IsListOfObjects(value)) names.push_back(name);
  }
  return names;
}

// Returns true if a key of the object is a column of text, of which lists are values.
bool HasTextColumn(const Json& object, const ColumnSet& text) {
  for (const auto& [name, value] : object.items()) {
    if (text.contains(name)) return true;
  }
  return false;
}

absl::StatusOr<Json> FindRows(Json json, bool lists_are_columns, const ColumnSet& text) {
  if (json.is_array()) {
    if (!IsListOfObjects(json)) return Invalid("the array must hold objects, one for each sample");
    return json;
  }
  if (HasTextColumn(json, text)) return Json::array({std::move(json)});
  if (IsSplit(json)) return JoinSplit(json);
  const std::vector<std::string> lists = FindLists(json);
  if (lists.size() == 1) return json[lists[0]];
  if (lists.size() > 1)
    return Invalid("'", lists[0], "' and '", lists[1], "' are lists of objects (jq -c '.[\"", lists[1],
                   "\"][]' FILE > data.jsonl writes one of them as lines)");
  if (lists_are_columns) {
    Json lists = WithoutScalars(json);
    if (lists.size() > 1 && IsByColumn(lists, true)) return JoinColumns(std::move(lists));
  }
  if (IsByColumn(json, lists_are_columns)) return JoinColumns(std::move(json));
  return Json::array({std::move(json)});
}

ReadFn StreamLines(Json rows) {
  auto shared = std::make_shared<const Json>(std::move(rows));
  return [shared, row = size_t{0}, line = std::string(),
          at = size_t{0}](std::span<std::byte> out) mutable -> absl::StatusOr<size_t> {
    size_t done = 0;
    while (done < out.size()) {
      if (at == line.size()) {
        if (row == shared->size()) break;
        line = WriteJson((*shared)[row++]) + "\n";
        at = 0;
      }
      const size_t size = std::min(out.size() - done, line.size() - at);
      std::memcpy(out.data() + done, line.data() + at, size);
      done += size;
      at += size;
    }
    return done;
  };
}

// Converts a stream to JSON lines, one object per sample. Lines pass unchanged. These documents are converted: an array
// of objects; an object with one such array; an object of columns, which are objects with equally many rows (pandas),
// orient="split", or, with `lists_are_columns`, lists of equal length ≥ 2, next to which single values are dropped.
// Another object, and one with a column of options.text, is one sample; other arrays, and objects of several lists of
// objects, are errors.
absl::StatusOr<ReadFn> ReadAsJsonLines(ReadFn read, bool lists_are_columns, const DatasetOptions& options) {
  Head head(std::move(read));
  RETURN_IF_ERROR(head.Fill());
  RETURN_IF_ERROR(head.ReadFirstLine());
  if (!head.IsDocument()) return head.Stream();
  const int64_t most = (options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit()) / kMemoryPerByte;
  ASSIGN_OR_RETURN(const std::string text, head.ReadWhole(most));
  Json json = ParseJson<Json>(text);
  if (json.is_discarded()) return StreamText(text);  // treated as lines, the first of which is invalid
  ASSIGN_OR_RETURN(Json rows, FindRows(std::move(json), lists_are_columns, options.text));
  return StreamLines(std::move(rows));
}

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
  // Counts memory: two characters of an array ("1,") become a number of 8 bytes.
  absl::Status AddLine(const std::string& line) {
    rows_.push_back(reader_.number());
    bytes_ += static_cast<int64_t>(4 * line.size() + sizeof(int64_t));
    RETURN_IF_ERROR(CheckMemory(bytes_, limit_));
    const absl::StatusOr<Json> json = ParseJsonObject(TakeLists(line));
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

  // Puts null for lists of objects in columns of text, which pass unparsed: they are parsed when a dialogue is read.
  std::string TakeLists(const std::string& line) {
    lists_.clear();
    const bool has_texts = options_.text.all || !options_.text.names.empty();
    const auto members = has_texts ? ScanJsonObject(line) : std::nullopt;
    if (!members.has_value()) return line;
    std::string rest;
    size_t done = 0;
    for (const JsonMember& member : *members) {
      const bool list = member.value.starts_with("[{") && options_.text.contains(std::string(member.key));
      if (!list || !lists_.emplace(member.key, member.value).second) continue;
      const size_t begin = member.value.data() - line.data();
      StrAppend(&rest, std::string_view(line).substr(done, begin - done), "null");
      done = begin + member.value.size();
    }
    return rest + line.substr(done);
  }

  // Adds the values of an object; keys of nested objects are joined: {"meta": {"label": 1}} is "meta.label".
  absl::Status AddValues(const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
      if (HasKeys(value) && !options_.text.contains(prefix + key)) {
        RETURN_IF_ERROR(AddValues(value, StrCat(prefix, key, ".")));
        continue;
      }
      ASSIGN_OR_RETURN(Entry * entry, FindColumn(prefix + key, value));
      if (entry->last == reader_.number())
        return Invalid("row ", reader_.number(), ": the key '", entry->name, "' comes twice");
      entry->last = reader_.number();
      const auto list = prefix.empty() ? lists_.find(key) : lists_.end();
      RETURN_IF_ERROR(list == lists_.end() ? entry->column->Add(reader_.number(), value)
                                           : entry->column->AddText(reader_.number(), list->second));
    }
    return absl::OkStatus();
  }

  absl::Status AddBad(const std::string& why) {
    if (!options_.skip_bad) return Invalid(why);
    for (Entry& entry : columns_) entry.column->AddUnreadable(StrCat(path_, ": ", why));
    bad_.emplace_back(rows_.size() - 1, why);
    return absl::OkStatus();
  }

  // Resolves the label by name; an index refers to the keys of the first line.
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
    int64_t last = 0;  // row of the last value
  };

  // Returns the column of a key. A new column, of which `first` is the first value, has missing values for earlier
  // lines.
  absl::StatusOr<Entry*> FindColumn(const std::string& key, const Json& first) {
    const auto [at, added] = index_.try_emplace(key, columns_.size());
    if (!added) return &columns_[at->second];
    if (columns_.size() == kMaxColumns) return Invalid("there are more than ", kMaxColumns, " keys");
    columns_.push_back({key, MakeColumn(key, first)});
    Entry& entry = columns_.back();
    for (size_t i = 0, bad = 0; i + 1 < rows_.size(); ++i) {
      const bool is_bad = bad < bad_.size() && bad_[bad].first == i;
      if (is_bad) entry.column->AddUnreadable(StrCat(path_, ": ", bad_[bad++].second));
      if (!is_bad) RETURN_IF_ERROR(entry.column->Add(rows_[i], nullptr));
    }
    return &entry;
  }

  std::unique_ptr<JsonColumn> MakeColumn(const std::string& key, const Json& first) const {
    const bool is_label = std::ranges::find(labels_, key) != labels_.end();
    const bool is_text = options_.text.contains(key) || (options_.text_labels && is_label && !first.is_array());
    return std::make_unique<JsonColumn>(CsvColumnSpec{.path = path_, .name = key, .skip_bad = options_.skip_bad},
                                        MakeCsvColumn({.path = path_, .name = key}, is_label, options_), is_text);
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
  std::map<std::string, std::string> lists_;  // JSON of the lists that TakeLists took
  std::vector<Entry> columns_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<std::pair<size_t, std::string>> bad_;  // reason, by sample
  std::vector<int64_t> rows_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> ReadJsonLines(const std::string& name, const ReadFn& read,
                                                             const DatasetOptions& options) {
  auto dataset = Lines(name, read, options).Load();
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(name, ": "));
  return dataset;
}

absl::StatusOr<ReadFn> OpenAsJsonLines(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  auto lines = ReadAsJsonLines(DecodeText(file.reader(), options.encoding), HasSuffix(path, {".json"}, true), options);
  if (!lines.ok()) return Annotate(lines.status(), StrCat(path, ": "));
  return lines;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenJsonLines(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const ReadFn read, OpenAsJsonLines(path, options));
  return ReadJsonLines(path, read, options);
}

}  // namespace onnxtrain
