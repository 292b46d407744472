#include "frontend/data/sources/csv.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/data/text/text_encoding.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

// Returns the first non-blank line of `text` without quoted parts.
std::string FirstUnquotedLine(std::string_view text) {
  std::string line;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c != '\n' && c != '\r') {
      line += c;
    } else if (!line.empty()) {
      break;
    }
  }
  return line;
}

// Returns true if there are two complete lines with text that are not comments.
bool HasTableStart(std::string_view text) {
  int lines = 0;
  while (lines < 2) {
    const size_t first = text.find_first_not_of("\r\n");
    const size_t end = first == std::string_view::npos ? first : text.find_first_of("\r\n", first);
    if (end == std::string_view::npos) return false;
    if (text[first] != '#') ++lines;
    text.remove_prefix(end);
  }
  return true;
}

char FindSeparator(const std::string& line, char expected) {
  std::map<char, int64_t> counts;
  for (const char c : line) ++counts[c];
  const bool only_numbers = line.find_first_not_of("0123456789+-.,;eE \t\"") == std::string::npos;
  if (counts[expected] > 0) return expected == ',' && only_numbers && counts[';'] > 0 ? ';' : expected;
  char best = expected;
  for (const char other : {';', '\t', '|', ','}) {
    if (counts[other] > counts[best]) best = other;
  }
  return best;
}

constexpr char kBlanks[] = " \t";

bool IsBlank(int c) { return c == ' ' || c == '\t'; }

// Returns true if the line holds several numbers separated by blanks.
bool HasNumbersBetweenBlanks(const std::string& line) {
  const size_t first = line.find_first_not_of(kBlanks), last = line.find_last_not_of(kBlanks);
  return first != std::string::npos && line.find_first_not_of("0123456789+-.eE?\" \t") == std::string::npos &&
         line.find(' ', first) < last;
}

std::vector<std::string> SplitAtBlanks(const std::string& line) {
  return absl::StrSplit(line, absl::ByAnyChar(kBlanks), absl::SkipEmpty());
}

bool IsWordOfNumber(const std::string& word) {
  double value;
  return absl::SimpleAtod(word, &value);
}

// Returns for each word whether it is a number or marks a missing one.
std::vector<bool> FindNumbers(const std::vector<std::string>& words) {
  static const auto* const kMissing = new std::set<std::string>{"NA", "<NA>", "None", "?"};
  std::vector<bool> numbers;
  for (const std::string& word : words) numbers.push_back(IsWordOfNumber(word) || kMissing->contains(word));
  return numbers;
}

// Returns true if all words differ and none is a number.
bool AreNames(const std::vector<std::string>& words) {
  return std::ranges::none_of(words, IsWordOfNumber) &&
         std::set<std::string>(words.begin(), words.end()).size() == words.size();
}

// Returns the first lines of a text that are neither blank nor comments.
std::vector<std::string> TakeLines(std::string_view text, size_t most) {
  std::vector<std::string> lines;
  while (lines.size() < most && !text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(kBlanks) != std::string::npos && line[0] != '#') lines.push_back(std::move(line));
  }
  return lines;
}

// Returns true for a printed table: optional names, then at least two rows. All lines have equally many words; most are
// numbers, in the same positions of all rows, which is unlikely for several lines of text. Tables with tabs are
// excluded, since their fields may be empty.
bool IsPrintedTable(std::string_view text) {
  constexpr size_t kLines = 20;
  const std::vector<std::string> lines = TakeLines(text, kLines);
  if (lines.size() < 3 || lines[0].find('\t') != std::string::npos) return false;
  const std::vector<bool> numbers = FindNumbers(SplitAtBlanks(lines[1]));
  if (numbers.size() < 3 || 2 * std::ranges::count(numbers, true) <= std::ssize(numbers)) return false;
  const auto is_row = [&](const std::string& line) {
    return line.find('"') == std::string::npos && FindNumbers(SplitAtBlanks(line)) == numbers;
  };
  const std::vector<std::string> first = SplitAtBlanks(lines[0]);
  if (!is_row(lines[0]) && (first.size() != numbers.size() || !AreNames(first))) return false;
  return std::all_of(lines.begin() + 1, lines.end(), is_row);
}

constexpr size_t kBuffer = 1 << 18;
constexpr size_t kMaxField = size_t{256} << 20;

}  // namespace

CsvReader::CsvReader(ReadFn read, char separator, const std::string& encoding)
    : read_(DecodeText(std::move(read), encoding)), separator_(separator) {}

template <typename... Args>
absl::Status CsvReader::Fail(const Args&... args) const {
  return Invalid("row ", row_, ", column ", column_, ": ", args...);
}

absl::Status CsvReader::ReadMore(size_t bytes) {
  const size_t before = buffer_.size();
  buffer_.resize(before + bytes);
  auto got = read_(std::as_writable_bytes(std::span(buffer_)).subspan(before));
  if (!got.ok()) return Annotate(got.status(), StrCat("behind row ", row_, ": "));
  buffer_.resize(before + *got);
  ended_ = *got == 0;
  return absl::OkStatus();
}

absl::Status CsvReader::Fill() {
  buffer_.clear();
  at_ = 0;
  return ReadMore(kBuffer);
}

absl::StatusOr<int> CsvReader::Peek() {
  if (at_ == buffer_.size() && !ended_) RETURN_IF_ERROR(Fill());
  return at_ < buffer_.size() ? static_cast<unsigned char>(buffer_[at_]) : -1;
}

absl::Status CsvReader::Append(char c, std::string* field) {
  if (c == '\0') return Fail("a NUL byte: the text is not UTF-8 (`encoding` NAME says what it is)");
  if (field->size() == kMaxField) return Fail("the field has more than 256 MiB; is a quote not closed?");
  field->push_back(c);
  return absl::OkStatus();
}

absl::Status CsvReader::ReadQuoted(std::string* field) {
  ++at_;  // the opening quote
  while (true) {
    ASSIGN_OR_RETURN(const int c, Peek());
    if (c < 0) return Fail("the quote that begins this field is not closed");
    ++at_;
    if (c == '"') {
      ASSIGN_OR_RETURN(const int next, Peek());
      if (next != '"') return absl::OkStatus();
      ++at_;
    }
    RETURN_IF_ERROR(Append(static_cast<char>(c), field));
  }
}

absl::Status CsvReader::ReadPlain(std::string* field) {
  while (true) {
    ASSIGN_OR_RETURN(const int c, Peek());
    if (c < 0 || Separates(c) || c == '\n' || c == '\r') return absl::OkStatus();
    ++at_;
    RETURN_IF_ERROR(Append(static_cast<char>(c), field));
  }
}

absl::Status CsvReader::ReadField(std::string* field) {
  field->clear();
  ASSIGN_OR_RETURN(const int first, Peek());
  RETURN_IF_ERROR(first == '"' ? ReadQuoted(field) : ReadPlain(field));
  if (FindInvalidUtf8(*field) == std::string::npos) return absl::OkStatus();
  *field = RepairUtf8(*field);
  if (repaired_++ == 0) first_repaired_ = {row_, *field};
  return absl::OkStatus();
}

absl::StatusOr<bool> CsvReader::SkipBlanks() {
  bool skipped = false;
  while (true) {
    ASSIGN_OR_RETURN(const int c, Peek());
    if (!blanks_ || !IsBlank(c)) return skipped;
    ++at_;
    skipped = true;
  }
}

absl::StatusOr<bool> CsvReader::EndRecord() {
  ASSIGN_OR_RETURN(const bool skipped, SkipBlanks());
  ASSIGN_OR_RETURN(const int c, Peek());
  if (c < 0) return true;
  if (skipped && c != '\n' && c != '\r') return false;
  if (c != separator_ && c != '\n' && c != '\r') return Fail("text after the closing quote");
  ++at_;
  if (c == '\r') {
    ASSIGN_OR_RETURN(const int next, Peek());
    if (next == '\n') ++at_;
  }
  return c != separator_;
}

// Consumes Excel's line "sep=;" before the table.
void CsvReader::ConsumeSeparatorLine() {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.size() < 6 || !absl::EqualsIgnoreCase(absl::string_view(rest.data(), 4), "sep=")) return;
  if (rest[5] != '\n' && rest[5] != '\r') return;
  separator_ = rest[4];
  named_ = true;
  at_ += 5;  // leaves a blank line
}

// Skips comments. The last comment is the header if it has as many fields as the next line: "# a,b" of numpy without
// the mark, "#,Name" unchanged.
void CsvReader::SkipComments() {
  while (at_ < buffer_.size() && buffer_[at_] == '#') {
    const std::string_view rest = std::string_view(buffer_).substr(at_);
    const size_t end = rest.find_first_of("\r\n");
    if (end == std::string_view::npos) return;
    const std::string line(rest.substr(0, end)), next = FirstUnquotedLine(rest.substr(end));
    const char separator = FindSeparator(FirstUnquotedLine(line), separator_);
    const auto fields = std::ranges::count(line, separator);
    const size_t last = line.find_last_not_of(StrCat(" \t", std::string(1, separator)));
    const bool padded = fields > 0 && line.find(separator) > last;  // "# made by,,,"
    if (fields > 0 && !padded && std::ranges::count(next, separator) == fields) {
      if (next.starts_with('#')) return;  // lines that begin with '#' are rows
      const size_t name = line.find_first_not_of("# \t");
      if (name != std::string::npos && line[name] != separator) at_ += name;
      return;
    }
    at_ += end;
    for (; at_ < buffer_.size() && (buffer_[at_] == '\n' || buffer_[at_] == '\r'); ++at_) {
      if (buffer_.compare(at_, 2, "\r\n") == 0) ++at_;
      ++row_;
    }
  }
}

absl::Status CsvReader::Start() {
  started_ = true;
  // Reads of a pipe may return partial lines.
  while (!ended_ && buffer_.size() < kBuffer && (buffer_.size() < 3 || !HasTableStart(buffer_)))
    RETURN_IF_ERROR(ReadMore(kBuffer - buffer_.size()));
  if (buffer_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  ConsumeSeparatorLine();
  SkipComments();
  if (!named_) ChooseSeparator();
  return absl::OkStatus();
}

// Returns the complete lines in the buffer.
std::string_view CsvReader::WholeLines() const {
  const std::string_view text = std::string_view(buffer_).substr(at_);
  return ended_ ? text : text.substr(0, text.find_last_of("\r\n") + 1);
}

// Chooses the separator from the buffered lines. In tables of numbers it may be blanks; the first line may hold names.
void CsvReader::ChooseSeparator() {
  const std::string_view text = std::string_view(buffer_).substr(at_);
  const std::string first = FirstUnquotedLine(text);
  separator_ = FindSeparator(first, separator_);
  std::string next;
  size_t end = text.find_first_of("\r\n", text.find_first_not_of("\r\n"));
  for (; end != std::string_view::npos; end = text.find_first_of("\r\n", text.find_first_not_of("\r\n", end))) {
    next = FirstUnquotedLine(text.substr(end));
    if (!next.starts_with('#')) break;
  }
  blanks_ = first.find_first_of(",;|") == std::string::npos &&
            (HasNumbersBetweenBlanks(next.empty() ? first : next) || IsPrintedTable(WholeLines()));
  if (blanks_) separator_ = ' ';
}

absl::StatusOr<bool> CsvReader::Next(std::vector<std::string>* fields) {
  if (!started_) RETURN_IF_ERROR(Start());
  while (true) {
    ASSIGN_OR_RETURN(const int first, Peek());
    if (first < 0) return false;
    ++row_;
    column_ = 0;
    RETURN_IF_ERROR(SkipBlanks().status());
    for (bool end = false; !end; ++column_) {
      if (static_cast<size_t>(column_) == fields->size()) fields->emplace_back();
      RETURN_IF_ERROR(ReadField(&(*fields)[column_]));
      ASSIGN_OR_RETURN(end, EndRecord());
    }
    fields->resize(column_);
    const bool blank = first != '"' && column_ == 1 && (*fields)[0].find_first_not_of(kBlanks) == std::string::npos;
    if (!blank) return true;
  }
}

}  // namespace onnxtrain
