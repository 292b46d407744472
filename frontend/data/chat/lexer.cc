#include "frontend/data/chat/lexer.h"

#include <algorithm>
#include <optional>

#include "frontend/base/status.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr char32_t kLastCodePoint = 0x10ffff;

bool IsSpaceAt(std::string_view text, size_t at, size_t* bytes) {
  char32_t c = 0;
  *bytes = DecodeChar(text.substr(at), &c);
  return (GetCharClasses(c) & kIsSpace) != 0;
}

size_t SkipSpaces(std::string_view text, size_t at) {
  size_t bytes = 0;
  while (at < text.size() && IsSpaceAt(text, at, &bytes)) at += bytes;
  return at;
}

std::string_view StripRight(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1, bytes = 0;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    if (!IsSpaceAt(text, at, &bytes)) return text;
    text = text.substr(0, at);
  }
  return text;
}

// Converts line ends to "\n" and removes the last one.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordChar(std::string_view text, size_t at, size_t* bytes) {
  char32_t c = 0;
  *bytes = DecodeChar(text.substr(at), &c);
  return c == '_' || (GetCharClasses(c) & (kIsAlpha | kIsNumeric)) != 0 || (c >= 0x80 && HasFlags(c, kWord));
}

// Replaces the escapes of Python string literals.
class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        out_ += text_[at_++];
        continue;
      }
      const char kind = text_[at_ + 1];
      at_ += 2;
      RETURN_IF_ERROR(Unescape(kind));
    }
    return std::move(out_);
  }

 private:
  absl::Status Unescape(char kind) {
    constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    if (kind == '\n') return absl::OkStatus();
    if (const size_t known = kFrom.find(kind); known != kFrom.npos) {
      out_ += kTo[known];
      return absl::OkStatus();
    }
    constexpr std::string_view kNumbers = "xuU";
    if (const size_t number = kNumbers.find(kind); number != kNumbers.npos) return Number(size_t{2} << number);
    if (kind == 'N' || (kind >= '0' && kind <= '7'))
      return Invalid("unsupported escape \\", std::string(1, kind), " in a string");
    out_.append({'\\', kind});
    return absl::OkStatus();
  }

  absl::Status Number(size_t digits) {
    const std::string_view number = text_.substr(std::min(at_, text_.size()), digits);
    if (number.size() < digits || number.find_first_not_of("0123456789abcdefABCDEF") != number.npos)
      return Invalid("a truncated escape in a string");
    at_ += digits;
    return Append(static_cast<char32_t>(std::stoul(std::string(number), nullptr, 16)));
  }

  absl::Status Append(char32_t c) {
    if (c > kLastCodePoint || (c >= 0xd800 && c <= 0xdfff)) return Invalid("an escape in a string is no character");
    AppendChar(c, &out_);
    return absl::OkStatus();
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : owned_(NormalizeLines(source)), source_(owned_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const absl::Status status = ReadDataAndTag();
      if (!status.ok()) return Annotate(status, StrCat("line ", line_, ": "));
    }
    Push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status ReadDataAndTag() {
    const size_t tag = FindTag();
    if (tag == std::string_view::npos) {
      PushData(source_.substr(at_));
      at_ = source_.size();
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const bool has_sign = sign == '-' || sign == '+';
    PushData(StripData(source_.substr(at_, tag - at_), has_sign ? sign : ' ', kind != '{'));
    MoveTo(tag + 2 + (has_sign ? 1 : 0));
    if (kind == '#') return SkipComment();
    if (kind == '%' && SkipRawBegin()) return ReadRaw();
    Push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    return ReadTag(kind == '%' ? '%' : '}');
  }

  size_t FindTag() const {
    for (size_t at = source_.find('{', at_); at != source_.npos; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos) return at;
    }
    return std::string_view::npos;
  }

  // Strips text before a tag: all white space, or that of the tag's line if the line holds nothing else.
  std::string_view StripData(std::string_view data, char sign, bool strip_line) const {
    if (sign == '-') return StripRight(data);
    if (sign == '+' || !strip_line) return data;
    const size_t line = data.rfind('\n') + 1;
    const bool line_starts = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    return line_starts && SkipSpaces(data, line) == data.size() ? data.substr(0, line) : data;
  }

  // Skips a sign, the two characters of an end, and the white space that the sign strips after it.
  bool SkipEnd(std::string_view end, bool plus_allowed) {
    const char sign = at_ < source_.size() ? source_[at_] : ' ';
    const size_t signs = sign == '-' || (sign == '+' && plus_allowed) ? 1 : 0;
    if (source_.substr(std::min(at_ + signs, source_.size()), 2) != end) return false;
    size_t to = at_ + signs + 2;
    if (sign == '-') to = SkipSpaces(source_, to);
    if (signs == 0 && end != "}}" && to < source_.size() && source_[to] == '\n') ++to;
    MoveTo(to);
    return true;
  }

  absl::Status SkipComment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) return Invalid("a comment without its end #}");
    const bool has_sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    MoveTo(end - (has_sign ? 1 : 0));
    SkipEnd("#}", true);
    return absl::OkStatus();
  }

  bool SkipWord(std::string_view word, size_t* at) const {
    *at = SkipSpaces(source_, *at);
    if (source_.substr(std::min(*at, source_.size()), word.size()) != word) return false;
    *at = SkipSpaces(source_, *at + word.size());
    return true;
  }

  bool SkipRawBegin() {
    size_t at = at_;
    if (!SkipWord("raw", &at)) return false;
    if (source_.substr(at, 3) == "-%}") {
      MoveTo(SkipSpaces(source_, at + 3));
    } else if (source_.substr(at, 2) == "%}") {
      MoveTo(at + 2);
    } else {
      return false;
    }
    return true;
  }

  // Reads text up to {% endraw %}.
  absl::Status ReadRaw() {
    for (size_t tag = source_.find("{%", at_); tag != source_.npos; tag = source_.find("{%", tag + 1)) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      const bool has_sign = sign == '-' || sign == '+';
      size_t word = tag + 2 + (has_sign ? 1 : 0);
      if (!SkipWord("endraw", &word)) continue;
      const std::string_view data = StripData(source_.substr(at_, tag - at_), has_sign ? sign : ' ', true);
      const size_t before = at_;
      at_ = word;
      if (!SkipEnd("%}", true)) {
        at_ = before;
        continue;
      }
      const size_t after = at_;
      at_ = before;
      PushData(data);
      MoveTo(after);
      return absl::OkStatus();
    }
    return Invalid("a raw block without its end");
  }

  absl::Status ReadTag(char closer) {
    const std::string end{closer, '}'};
    std::string open;  // closing brackets that are expected
    while (true) {
      MoveTo(SkipSpaces(source_, at_));
      if (at_ == source_.size()) return Invalid("a tag without its end ", end);
      if (open.empty() && SkipEnd(end, closer == '%')) break;
      RETURN_IF_ERROR(ReadToken(&open));
    }
    Push(closer == '%' ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    return absl::OkStatus();
  }

  absl::Status ReadToken(std::string* open) {
    const char c = source_[at_];
    size_t bytes = 0;
    if (IsDigit(c)) return ReadNumber();
    if (c == '\'' || c == '"') return ReadString(c);
    if (!IsWordChar(source_, at_, &bytes)) return ReadOperator(open);
    const size_t begin = at_;
    size_t at = at_;
    while (at < source_.size() && IsWordChar(source_, at, &bytes)) at += bytes;
    Push(TokenKind::kName, source_.substr(begin, at - begin));
    at_ = at;
    return absl::OkStatus();
  }

  size_t SkipDigits(size_t at) const {
    while (at < source_.size() && IsDigit(source_[at])) ++at;
    return at;
  }

  // Returns the end of an exponent, or `at` if there is none.
  size_t SkipExponent(size_t at) const {
    if (at >= source_.size() || (source_[at] != 'e' && source_[at] != 'E')) return at;
    size_t digits = at + 1;
    if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
    return digits < source_.size() && IsDigit(source_[digits]) ? SkipDigits(digits) : at;
  }

  absl::Status ReadNumber() {
    size_t end = SkipDigits(at_);
    const size_t whole = end;
    const bool may_be_float = at_ == 0 || source_[at_ - 1] != '.';
    if (may_be_float && end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1]))
      end = SkipDigits(end + 1);
    if (may_be_float) end = SkipExponent(end);
    Push(end > whole ? TokenKind::kFloat : TokenKind::kInteger, source_.substr(at_, end - at_));
    at_ = end;
    return absl::OkStatus();
  }

  absl::Status ReadString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Invalid("a string without its end ", std::string(1, quote));
    ASSIGN_OR_RETURN(std::string text, Unescaper(source_.substr(at_ + 1, end - at_ - 1)).Run());
    Push(TokenKind::kString, text);
    MoveTo(end + 1);
    return absl::OkStatus();
  }

  absl::Status ReadOperator(std::string* open) {
    constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kOpen = "([{", kClose = ")]}", kShort = "+-/*%~[](){}><=.:|,;";
    const std::string_view two = source_.substr(at_, 2), one = source_.substr(at_, 1);
    const bool is_long = std::ranges::find(kLong, two) != std::end(kLong);
    if (!is_long && kShort.find(one) == kShort.npos) return Invalid("unexpected character '", Printable(one), "'");
    const size_t opened = is_long ? kOpen.npos : kOpen.find(one);
    if (opened != kOpen.npos) *open += kClose[opened];
    if (!is_long && kClose.find(one) != kClose.npos) {
      if (open->empty() || open->back() != one[0]) return Invalid("unexpected '", one, "'");
      open->pop_back();
    }
    Push(TokenKind::kOperator, is_long ? two : one);
    at_ += is_long ? 2 : 1;
    return absl::OkStatus();
  }

  void PushData(std::string_view data) {
    if (!data.empty()) Push(TokenKind::kData, data);
  }

  void Push(TokenKind kind, std::string_view text) { tokens_.push_back({kind, std::string(text), line_}); }

  // Advances the position and updates the line number.
  void MoveTo(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<int64_t>(counted_),
                                         source_.begin() + static_cast<int64_t>(std::max(to, counted_)), '\n'));
    counted_ = std::max(to, counted_);
    at_ = to;
  }

  std::string owned_;
  std::string_view source_;
  size_t at_ = 0, counted_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace onnxtrain::jinja
