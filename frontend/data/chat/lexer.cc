#include "frontend/data/chat/lexer.h"

#include <algorithm>
#include <charconv>

#include "frontend/base/status.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr std::string_view kNumberChars = "0123456789";

bool IsSpaceAt(std::string_view text, size_t at) {
  char32_t c = 0;
  DecodeChar(text.substr(at), &c);
  return (GetCharClasses(c) & kIsSpace) != 0;
}

size_t SkipSpaces(std::string_view text, size_t at) {
  while (at < text.size() && IsSpaceAt(text, at)) at += CharBytes(text[at]);
  return at;
}

std::string_view StripRight(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
    if (!IsSpaceAt(text, last)) break;
    text = text.substr(0, last);
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

bool IsWordChar(std::string_view text, size_t at) {
  char32_t c = 0;
  DecodeChar(text.substr(at), &c);
  return c == '_' || (GetCharClasses(c) & (kIsAlpha | kIsNumeric)) != 0 || (c >= 0x80 && HasFlags(c, kWord));
}

// Replaces the escape after a backslash, of Python's string literals, and removes it from *text.
absl::Status Unescape(std::string_view* text, std::string* out) {
  constexpr std::string_view kFrom = "abfnrtv\\'\"\n", kTo = "\a\b\f\n\r\t\v\\'\"", kNumbers = "xuU";
  const char kind = text->front();
  text->remove_prefix(1);
  if (const size_t known = kFrom.find(kind); known != kFrom.npos) {
    *out += kTo.substr(known, 1);  // nothing for an escaped line end
    return absl::OkStatus();
  }
  if (kind == 'N' || (kind >= '0' && kind <= '7'))
    return Invalid("unsupported escape \\", std::string(1, kind), " in a string");
  if (kNumbers.find(kind) == kNumbers.npos) {
    out->append({'\\', kind});
    return absl::OkStatus();
  }
  const std::string_view digits = text->substr(0, size_t{2} << kNumbers.find(kind));
  uint32_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (digits.size() < size_t{2} << kNumbers.find(kind) || parsed.ptr != digits.data() + digits.size())
    return Invalid("a truncated escape in a string");
  if (number > 0x10ffff || (number >= 0xd800 && number <= 0xdfff))
    return Invalid("an escape in a string is no character");
  AppendChar(number, out);
  text->remove_prefix(digits.size());
  return absl::OkStatus();
}

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
  // Returns the character at an offset, or a blank after the end.
  char At(size_t at) const { return at < source_.size() ? source_[at] : ' '; }
  bool HasSign(size_t at) const { return At(at) == '-' || At(at) == '+'; }
  bool StartsWith(size_t at, std::string_view text) const {
    return source_.substr(std::min(at, source_.size())).starts_with(text);
  }

  absl::Status ReadDataAndTag() {
    size_t tag = source_.find('{', at_);
    while (tag != source_.npos && At(tag + 1) != '{' && At(tag + 1) != '%' && At(tag + 1) != '#')
      tag = source_.find('{', tag + 1);
    if (tag == source_.npos) {
      PushData(source_.substr(at_));
      at_ = source_.size();
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    PushData(StripData(tag, kind != '{'));
    MoveTo(tag + (HasSign(tag + 2) ? 3 : 2));
    if (kind == '#') return SkipComment();
    if (const size_t raw = kind == '%' ? FindAfterTag("raw", at_) : source_.npos; raw != source_.npos)
      return ReadRaw(raw);
    Push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    return ReadTag(kind == '%' ? '%' : '}');
  }

  // Returns the text before a tag, stripped: of all white space, or of that of the tag's line if the line holds nothing
  // else.
  std::string_view StripData(size_t tag, bool strip_line) const {
    const std::string_view data = source_.substr(at_, tag - at_);
    if (At(tag + 2) == '-') return StripRight(data);
    if (At(tag + 2) == '+' || !strip_line) return data;
    const size_t line = data.rfind('\n') + 1;
    const bool line_starts = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    return line_starts && SkipSpaces(data, line) == data.size() ? data.substr(0, line) : data;
  }

  // Returns the offset after an end of a tag, with its sign and the white space that is stripped after it, or npos.
  size_t FindAfterEnd(size_t at, std::string_view end, bool plus_allowed = true) const {
    const char sign = At(at);
    const size_t signs = sign == '-' || (sign == '+' && plus_allowed) ? 1 : 0;
    if (!StartsWith(at + signs, end)) return source_.npos;
    const size_t to = at + signs + end.size();
    if (sign == '-') return SkipSpaces(source_, to);
    return signs == 0 && end != "}}" && At(to) == '\n' ? to + 1 : to;
  }

  absl::Status SkipComment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) return Invalid("a comment without its end #}");
    MoveTo(FindAfterEnd(end > at_ && HasSign(end - 1) ? end - 1 : end, "#}"));
    return absl::OkStatus();
  }

  // Returns the offset after the rest of a tag that holds only this word, or npos.
  size_t FindAfterTag(std::string_view word, size_t from) const {
    const size_t at = SkipSpaces(source_, from);
    return StartsWith(at, word) ? FindAfterEnd(SkipSpaces(source_, at + word.size()), "%}") : source_.npos;
  }

  // Reads the text from `begin` up to {% endraw %}, which is not interpreted.
  absl::Status ReadRaw(size_t begin) {
    MoveTo(begin);
    for (size_t tag = source_.find("{%", at_); tag != source_.npos; tag = source_.find("{%", tag + 1)) {
      const size_t after = FindAfterTag("endraw", tag + (HasSign(tag + 2) ? 3 : 2));
      if (after == source_.npos) continue;
      PushData(StripData(tag, true));
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
      const size_t after = open.empty() ? FindAfterEnd(at_, end, closer == '%') : source_.npos;
      if (after != source_.npos) {
        MoveTo(after);
        break;
      }
      RETURN_IF_ERROR(ReadToken(&open));
    }
    Push(closer == '%' ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    return absl::OkStatus();
  }

  absl::Status ReadToken(std::string* open) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return ReadString(c);
    if (c >= '0' && c <= '9') {
      ReadNumber();
      return absl::OkStatus();
    }
    size_t end = at_;
    while (end < source_.size() && IsWordChar(source_, end)) end += CharBytes(source_[end]);
    if (end == at_) return ReadOperator(open);
    Push(TokenKind::kName, source_.substr(at_, end - at_));
    at_ = end;
    return absl::OkStatus();
  }

  size_t SkipDigits(size_t at) const { return std::min(source_.find_first_not_of(kNumberChars, at), source_.size()); }
  bool IsDigit(size_t at) const { return kNumberChars.find(At(at)) != kNumberChars.npos; }

  void ReadNumber() {
    const size_t whole = SkipDigits(at_);
    size_t end = whole;
    const bool may_be_float = at_ == 0 || source_[at_ - 1] != '.';
    if (may_be_float && At(end) == '.' && IsDigit(end + 1)) end = SkipDigits(end + 1);
    const size_t exponent = end + (HasSign(end + 1) ? 2 : 1);
    if (may_be_float && (At(end) == 'e' || At(end) == 'E') && IsDigit(exponent)) end = SkipDigits(exponent);
    Push(end > whole ? TokenKind::kFloat : TokenKind::kInteger, source_.substr(at_, end - at_));
    at_ = end;
  }

  absl::Status ReadString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Invalid("a string without its end ", std::string(1, quote));
    std::string text;
    for (std::string_view rest = source_.substr(at_ + 1, end - at_ - 1); !rest.empty();) {
      const size_t plain = std::min(rest.find('\\'), rest.size());
      text += rest.substr(0, plain);
      rest.remove_prefix(std::min(plain + 1, rest.size()));
      if (!rest.empty()) RETURN_IF_ERROR(Unescape(&rest, &text));
    }
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
    line_ += static_cast<int>(std::ranges::count(source_.substr(counted_, to - counted_), '\n'));
    counted_ = to;
    at_ = to;
  }

  const std::string owned_;
  const std::string_view source_;
  size_t at_ = 0, counted_ = 0;  // `line_` is that of `counted_`
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace onnxtrain::jinja
