#include "frontend/data/sources/rows.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/text_encoding.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr size_t kBuffer = 1 << 18;
constexpr size_t kMaxLine = size_t{256} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

absl::StatusOr<bool> LineReader::Fill() {
  buffer_.resize(kBuffer);
  at_ = 0;
  ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(buffer_))));
  buffer_.resize(got);
  return got > 0;
}

absl::StatusOr<bool> LineReader::Next(std::string* line) {
  line->clear();
  bool any = false;
  for (size_t end = std::string::npos; end == std::string::npos;) {
    if (at_ == buffer_.size()) {
      ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) break;
    }
    any = true;
    end = buffer_.find('\n', at_);
    const size_t stop = std::min(end, buffer_.size());
    line->append(buffer_, at_, stop - at_);
    at_ = end == std::string::npos ? stop : stop + 1;
    if (line->size() > kMaxLine) return Invalid("line ", number_ + 1, " has more than 256 MiB");
  }
  if (!any) return false;
  if (++number_ == 1 && line->starts_with(kByteOrderMark)) line->erase(0, kByteOrderMark.size());
  if (line->ends_with('\r')) line->pop_back();
  return true;
}

namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

constexpr char kColumn[] = "text";

bool IsTextName(const std::string& name) { return HasSuffix(name, {".txt"}, true); }

int64_t MemoryLimit(const DatasetOptions& options) {
  return options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit();
}

// Converts Windows-1252 texts to UTF-8 and returns notes about them. Texts with some UTF-8 above ASCII stay unchanged.
std::vector<std::string> RepairTexts(const std::function<std::string(int64_t)>& describe,
                                     std::vector<std::string>* texts) {
  int64_t repaired = 0;
  std::string first;
  for (size_t i = 0; i < texts->size(); ++i) {
    std::string& text = (*texts)[i];
    if (FindInvalidUtf8(text) == std::string::npos || HasUtf8AboveAscii(text)) continue;
    text = RepairUtf8(text);
    if (repaired++ == 0) first = describe(static_cast<int64_t>(i));
  }
  if (repaired == 0) return {};
  return {StrCat(first, ": the text is not UTF-8 and is read as Windows-1252; ", repaired,
                 " such texts (`encoding` NAME if it is another)")};
}

Opened MakeTexts(std::vector<std::string> texts, std::function<std::string(int64_t)> describe) {
  std::vector<std::string> notes = RepairTexts(describe, &texts);
  NamedTensor column{.name = kColumn, .tensor = HostTensor({DType::kUInt8, {std::ssize(texts)}})};
  column.texts = std::move(texts);
  std::vector<NamedTensor> columns;
  columns.push_back(std::move(column));
  ASSIGN_OR_RETURN(auto dataset, MakeMemoryDataset(std::move(columns), std::move(describe)));
  return WithNotes(std::move(dataset), std::move(notes));
}

absl::StatusOr<std::string> ReadDocument(const std::string& path, const std::string& encoding, int64_t limit) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  auto text = ReadAll(DecodeText(file.reader(), encoding), limit);
  if (!text.ok()) return Annotate(text.status(), path + ": ");
  if (text->starts_with(kByteOrderMark)) text->erase(0, kByteOrderMark.size());
  if (text->empty()) return Invalid(path, ": there is no text");
  return text;
}

}  // namespace

bool IsTextFolder(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return false;
  const auto names = ListFolder(path);
  return names.ok() && !names->empty() && std::ranges::all_of(*names, IsTextName);
}

Opened OpenTextFiles(const std::string& path, const DatasetOptions& options) {
  std::vector<std::string> paths = {path};
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    ASSIGN_OR_RETURN(paths, ListFolder(path));
    for (std::string& name : paths) name = (std::filesystem::path(path) / name).string();
  }
  int64_t left = MemoryLimit(options);
  std::vector<std::string> texts;
  for (const std::string& file : paths) {
    ASSIGN_OR_RETURN(texts.emplace_back(), ReadDocument(file, options.encoding, left));
    left -= static_cast<int64_t>(texts.back().size());
  }
  if (texts.empty()) return Invalid(path, ": the folder is empty");
  return MakeTexts(std::move(texts), [paths](int64_t i) { return paths[i]; });
}

Opened OpenTextLines(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  LineReader reader(DecodeText(file.reader(), options.encoding));
  const int64_t limit = MemoryLimit(options);
  int64_t bytes = 0;
  std::vector<std::string> texts;
  std::vector<int64_t> rows;
  for (std::string line;;) {
    const auto more = reader.Next(&line);
    if (!more.ok()) return Annotate(more.status(), path + ": ");
    if (!*more) break;
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    bytes += static_cast<int64_t>(line.size() + sizeof(line) + sizeof(int64_t));
    RETURN_IF_ERROR(Annotate(CheckMemory(bytes, limit), path + ": "));
    texts.push_back(line);
    rows.push_back(reader.number());
  }
  if (texts.empty()) return Invalid(path, ": there is no text");
  return MakeTexts(std::move(texts),
                   [path, rows = std::move(rows)](int64_t i) { return StrCat(path, ": row ", rows[i]); });
}

}  // namespace onnxtrain
