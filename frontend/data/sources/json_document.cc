#include "frontend/data/sources/json_document.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/sources/json_reader.h"
#include "frontend/data/sources/json_writer.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

constexpr size_t kStep = 1 << 16;
constexpr int64_t kMemoryPerByte = 16;  // of a parsed document
constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kMark = "\xef\xbb\xbf";

// A stream of `text` and then of `read`.
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

// The beginning of a stream up to where its kind is known, then the rest.
class Head {
 public:
  explicit Head(ReadFn read) : read_(std::move(read)) {}

  // Reads to the first character behind the first line that is not blank, or to the end.
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
  // Where the next line that is not blank begins; npos: it is not read yet, or there is none.
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

// {"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}: a row for each list.
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

// Lists, or objects of rows, of the same size, one for each column.
bool IsByColumn(const Json& object, bool lists) {
  if (object.empty()) return false;
  const Json& first = object.front();
  if (!first.is_object() && !(lists && first.is_array())) return false;
  if (first.size() < 2) return false;
  if (object.size() == 1 && first.is_array() && !first.front().is_array()) return false;  // a sample of one input
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

// What stands beside parallel lists and tells about all of them: a name, a version.
Json WithoutScalars(const Json& object) {
  Json lists = Json::object();
  for (const auto& [name, value] : object.items()) {
    if (value.is_structured()) lists[name] = value;
  }
  return lists;
}

// The lists of objects that an object holds, by name.
std::vector<std::string> FindLists(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) {
    if (IsListOfObjects(value)) names.push_back(name);
  }
  return names;
}

absl::StatusOr<Json> FindRows(Json json, bool lists_are_columns) {
  if (json.is_array()) {
    if (!IsListOfObjects(json)) return Invalid("the array must hold objects, one for each sample");
    return json;
  }
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

}  // namespace

absl::StatusOr<ReadFn> ReadAsJsonLines(ReadFn read, bool lists_are_columns, int64_t limit) {
  Head head(std::move(read));
  RETURN_IF_ERROR(head.Fill());
  RETURN_IF_ERROR(head.ReadFirstLine());
  if (!head.IsDocument()) return head.Stream();
  const int64_t most = (limit != 0 ? limit : DefaultMemoryLimit()) / kMemoryPerByte;
  ASSIGN_OR_RETURN(const std::string text, head.ReadWhole(most));
  Json json = ParseJson<Json>(text);
  if (json.is_discarded()) return StreamText(text);  // lines of which the first is broken
  ASSIGN_OR_RETURN(Json rows, FindRows(std::move(json), lists_are_columns));
  return StreamLines(std::move(rows));
}

}  // namespace onnxtrain
