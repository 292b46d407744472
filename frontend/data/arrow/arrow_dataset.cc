#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/arrow/arrow_source.h"
#include "frontend/data/arrow/arrow_table.h"
#include "frontend/data/arrow/stored_column.h"
#include "frontend/data/audio/sound_file.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/media_columns.h"
#include "frontend/data/text/text_encoding.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

using Kind = ArrowColumn::Kind;
using Table = std::shared_ptr<const ArrowTable>;

// A column of the data set: decoded values, values collected by the rules of CSV fields, or neither if it has a
// problem.
struct OwnColumn {
  Column column;
  std::shared_ptr<const StoredColumn> stored = nullptr;
  std::shared_ptr<const Dataset> collected = nullptr;  // a data set of one column
};

bool IsUtf8(std::string_view text) { return FindInvalidUtf8(text) == std::string_view::npos; }

class ArrowDataset : public Dataset {
 public:
  ArrowDataset(Table table, std::vector<OwnColumn> own) : table_(std::move(table)), own_(std::move(own)) {
    for (const OwnColumn& own_column : own_) columns_.push_back(own_column.column);
  }

  int64_t size() const override { return table_->rows(); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return table_->Describe(i); }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    for (const OwnColumn& own : own_) {
      if (own.collected != nullptr) std::ranges::copy(own.collected->notes(), std::back_inserter(notes));
    }
    return notes;
  }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    const OwnColumn& own = own_[c];
    if (!own.column.problem.empty()) return Invalid(own.column.problem);
    return own.stored != nullptr ? own.stored->Read(i, out) : own.collected->Read(i, 0, pass, out);
  }
  absl::Status ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const override {
    const OwnColumn& own = own_[c];
    if (!own.column.problem.empty() || own.stored == nullptr) return Dataset::ReadRange(first, count, c, out);
    return own.stored->ReadRange(first, count, out);
  }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override {
    if (!columns_[c].text) return Dataset::ReadText(i, c);
    ASSIGN_OR_RETURN(std::string text, own_[c].stored->ReadText(i));
    return IsUtf8(text) ? text : RepairUtf8(text);
  }

 private:
  Table table_;
  std::vector<OwnColumn> own_;
  std::vector<Column> columns_;
};

// Reads the pictures or sounds of a column of bytes. `names_row`: descriptions name the file and the row, too.
class StoredFiles : public MediaFiles {
 public:
  StoredFiles(Table table, int column, std::shared_ptr<const StoredColumn> stored, bool names_row)
      : table_(std::move(table)), column_(column), stored_(std::move(stored)), names_row_(names_row) {}
  int64_t size() const override { return table_->rows(); }
  absl::Status Read(int64_t i, std::vector<uint8_t>* bytes) const override { return ReadStart(i, SIZE_MAX, bytes); }
  absl::Status ReadStart(int64_t i, size_t most, std::vector<uint8_t>* bytes) const override {
    ASSIGN_OR_RETURN(const std::string text, stored_->ReadText(i, most));
    if (text.empty()) return Invalid("missing value");
    bytes->assign(text.begin(), text.end());
    return absl::OkStatus();
  }
  std::string Name(int64_t i) const override { return Describe(i); }
  std::string Describe(int64_t i) const override {
    const std::string column = StrCat("column '", Printable(table_->columns()[column_].name), "'");
    return names_row_ ? StrCat(table_->Describe(i), ", ", column) : column;
  }

 private:
  Table table_;
  int column_;
  std::shared_ptr<const StoredColumn> stored_;
  bool names_row_;
};

// Calls `add` with each text of a chunk, "" for missing ones, until it fails or returns false.
absl::StatusOr<bool> ForEachText(int64_t first, const ArrowChunk& chunk,
                                 const std::function<absl::StatusOr<bool>(int64_t row, std::string_view text)>& add) {
  for (int64_t i = 0; i < chunk.rows; ++i) {
    const bool missing = !chunk.missing.empty() && chunk.missing[i] != 0;
    const int64_t begin = chunk.offsets[i], size = missing ? 0 : chunk.offsets[i + 1] - begin;
    ASSIGN_OR_RETURN(const bool more, add(first + i, chunk.texts.substr(begin, size)));
    if (!more) return false;
  }
  return true;
}

// Returns the first non-empty value of a column of texts or bytes, and its row; row -1 if there is none.
absl::StatusOr<std::pair<int64_t, std::string>> FindFirstText(const ArrowTable& table, int c) {
  std::pair<int64_t, std::string> first = {-1, ""};
  RETURN_IF_ERROR(table.ReadColumn(c, true, [&](int64_t begin, const ArrowChunk& chunk) {
    return ForEachText(begin, chunk, [&](int64_t row, std::string_view text) {
      if (!text.empty()) first = {row, std::string(text)};
      return first.first < 0;
    });
  }));
  return first;
}

bool IsPicture(const std::string& bytes) {
  return PictureDecoder().Open({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok();
}

// Returns the CSV field for a value. `classes` names the values of integers.
std::string MakeField(const ArrowColumn& column, std::string_view text) {
  if (column.kind == Kind::kNumbers && column.dtype == DType::kBool)
    return text == "true" ? "1" : text.empty() ? "" : "0";
  if (column.classes.empty()) return IsUtf8(text) ? std::string(text) : RepairUtf8(text);
  const auto index = ParseInt(text);
  return index.ok() && *index >= 0 && *index < std::ssize(column.classes) ? column.classes[*index] : "";
}

class ColumnOpener {
 public:
  ColumnOpener(std::string path, Table table, const DatasetOptions& options)
      : path_(std::move(path)),
        table_(std::move(table)),
        options_(options),
        limit_(options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit()),
        budget_(std::make_shared<StoreBudget>(options.max_bytes != 0 ? limit_ : limit_ / 4)) {}

  absl::Status OpenAll() {
    RETURN_IF_ERROR(FindLabels());
    for (int c = 0; c < std::ssize(table_->columns()); ++c) {
      const ArrowColumn& info = table_->columns()[c];
      if (info.is_struct && !options_.text.contains(info.name)) continue;
      RETURN_IF_ERROR(OpenColumn(c));
    }
    return absl::OkStatus();
  }

  std::vector<OwnColumn> own;
  MediaColumns media{.describe = [](const std::string& column) { return StrCat("in column '", column, "'"); }};

 private:
  // Resolves the labels by name, or by index as for CSV files. The last column is the default.
  absl::Status FindLabels() {
    std::vector<std::string> names;
    for (const ArrowColumn& info : table_->columns()) {
      if (!info.is_struct) names.push_back(info.name);
    }
    labels_ = options_.label;
    if (labels_.empty() && !names.empty()) labels_ = {names.back()};
    for (std::string& label : labels_) {
      if (std::ranges::find(names, label) != names.end() || options_.text.contains(label)) continue;
      const auto index = ParseInt(label);
      if (!index.ok() || *index < 0 || *index >= std::ssize(names))
        return absl::NotFoundError(StrCat("there is no column '", Printable(label), "'"));
      label = names[*index];
    }
    return absl::OkStatus();
  }

  bool IsLabel(const ArrowColumn& info) const { return std::ranges::find(labels_, info.name) != labels_.end(); }
  bool IsCategory(const ArrowColumn& info) const { return options_.categories.names.contains(info.name); }

  std::string MakeName(const std::string& name) {
    std::string unique = name;
    for (int n = 1; !names_.insert(unique).second; ++n) unique = StrCat(name, ".", n);
    return unique;
  }

  absl::Status OpenColumn(int c) {
    const ArrowColumn& info = table_->columns()[c];
    const std::string name = MakeName(info.name);
    const bool text_label = options_.text_labels && IsLabel(info) && info.kind != Kind::kLists;
    const bool as_text = options_.text.contains(info.name) || text_label;
    if (as_text && info.kind != Kind::kUnreadable) return AddTexts(c, name), absl::OkStatus();
    if (info.kind == Kind::kLists) return AddLists(c, name), absl::OkStatus();
    const bool names = !options_.class_names.empty() || !info.classes.empty();
    if (info.kind == Kind::kNumbers && !IsCategory(info) && !(IsLabel(info) && names))
      return AddNumbers(c, name), absl::OkStatus();
    if (info.kind == Kind::kNumbers) return Collect(c, name);
    if (info.kind == Kind::kTexts || info.kind == Kind::kBytes) return OpenTexts(c, name);
    const std::string advice = info.kind == Kind::kNested ? " (`text` reads it as JSON)" : "";
    AddProblem(c, name, StrCat("holds ", Printable(info.type), ", not numbers", advice));
    return absl::OkStatus();
  }

  absl::Status OpenTexts(int c, const std::string& name) {
    const ArrowColumn& info = table_->columns()[c];
    const auto first = FindFirstText(*table_, c);
    if (!first.ok()) return AddProblemText(name, ToStd(first.status().message())), absl::OkStatus();
    if (info.kind == Kind::kBytes && IsPicture(first->second)) return AddPictures(c, name), absl::OkStatus();
    if (info.kind == Kind::kBytes && IsSound(first->second)) return AddSounds(c, name), absl::OkStatus();
    const bool collected = IsLabel(info) || IsCategory(info) || options_.categories.all ||
                           IsMissingValue(first->second) || IsCsvNumber(first->second);
    if (collected) return Collect(c, name);
    AddProblemText(name, table_->DescribeValue(first->first, c, "is text, not a number"));
    return absl::OkStatus();
  }

  void AddProblemText(const std::string& name, std::string_view problem) {
    own.push_back({.column = {.name = name, .sample = {DType::kFloat64, {}}, .problem = std::string(problem)}});
  }
  void AddProblem(int c, const std::string& name, const std::string& why) {
    AddProblemText(name, table_->DescribeColumn(c, why));
  }

  std::shared_ptr<const StoredColumn> Store(int c, bool as_text) const {
    using Missing = StoredColumn::Missing;
    const Missing missing = options_.missing.contains(table_->columns()[c].name) ? Missing::kNan
                            : options_.skip_bad                                  ? Missing::kUnreadable
                                                                                 : Missing::kProblem;
    return std::make_shared<StoredColumn>(table_, c, as_text, missing, budget_);
  }

  void AddTexts(int c, const std::string& name) {
    AddProblem(c, name, "is text");
    own.back().column.text = true;
    own.back().stored = Store(c, true);
  }

  // Adds numbers that are decoded at the first access, if none can be missing.
  void AddNumbers(int c, const std::string& name) {
    auto stored = Store(c, false);
    const absl::Status loaded = table_->columns()[c].missing == 0 ? absl::OkStatus() : stored->Load();
    if (!loaded.ok()) return AddProblemText(name, ToStd(loaded.message()));
    own.push_back({.column = {.name = name, .sample = stored->sample()}, .stored = stored});
  }

  void AddLists(int c, const std::string& name) {
    auto stored = Store(c, false);
    if (const absl::Status loaded = stored->Load(); !loaded.ok()) return AddProblemText(name, ToStd(loaded.message()));
    const Type sample = stored->sample();
    own.push_back({.column = {.name = name, .sample = sample, .image = HoldsPixels(sample)}, .stored = stored});
  }

  void AddPictures(int c, const std::string& name) {
    auto files = std::make_shared<StoredFiles>(table_, c, Store(c, true), false);
    media.pictures.push_back({.name = name, .options = options_.images, .files = std::move(files)});
  }

  void AddSounds(int c, const std::string& name) {
    media.sounds.push_back({name, std::make_shared<StoredFiles>(table_, c, Store(c, true), true)});
  }

  // Adds a column by the rules of CSV fields.
  absl::Status Collect(int c, const std::string& name) {
    const ArrowColumn& info = table_->columns()[c];
    DatasetOptions options = options_;
    if (options.class_names.empty()) options.class_names = info.classes;
    const auto values = MakeCsvColumn({.path = path_, .name = name}, IsLabel(info), options);
    int64_t bytes = 0;
    const absl::Status read = table_->ReadColumn(c, true, [&](int64_t first, const ArrowChunk& chunk) {
      return ForEachText(first, chunk, [&](int64_t row, std::string_view text) -> absl::StatusOr<bool> {
        bytes += static_cast<int64_t>(sizeof(int64_t));
        RETURN_IF_ERROR(CheckMemory(bytes, limit_));
        RETURN_IF_ERROR(values->Add(row, MakeField(info, text)));
        return true;
      });
    });
    if (!read.ok() && IsLabel(info)) return read;
    if (!read.ok()) return AddProblemText(name, ToStd(read.message())), absl::OkStatus();
    std::vector<NamedTensor> columns;
    columns.push_back(values->Finish());
    columns.back().note = values->note();
    ASSIGN_OR_RETURN(auto collected,
                     MakeMemoryDataset(std::move(columns), [table = table_](int64_t i) { return table->Describe(i); }));
    own.push_back({.column = collected->columns()[0], .collected = collected});
    return absl::OkStatus();
  }

  std::string path_;
  Table table_;
  const DatasetOptions& options_;
  int64_t limit_;
  std::shared_ptr<StoreBudget> budget_;
  std::vector<std::string> labels_;
  std::set<std::string> names_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenArrow(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, FindArrowFiles(path, options.eval_split));
  const int64_t limit = options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit();
  ASSIGN_OR_RETURN(const Table table, ArrowTable::Open(paths, limit));
  ColumnOpener opener(path, table, options);
  RETURN_IF_ERROR(Annotate(opener.OpenAll(), StrCat(path, ": ")));
  std::shared_ptr<const Dataset> others;
  if (!opener.own.empty()) others = std::make_shared<ArrowDataset>(table, std::move(opener.own));
  return AddMedia(path, std::move(opener.media), std::move(others), options);
}

}  // namespace onnxtrain
