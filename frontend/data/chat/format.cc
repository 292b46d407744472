// Implements "%" and str.format, with Python's conversions of strings, integers and floats.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/text_functions.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr int64_t kMaxPrecision = 300;

struct FormatSpec {
  std::string fill = " ";
  char align = 0, sign = '-', type = 0, grouping = 0;
  bool alternate = false;
  int64_t width = 0, precision = -1;
};

int64_t TakeNumber(std::string_view* text, int64_t otherwise) {
  constexpr int64_t kTooLarge = 1'000'000'000;
  if (text->empty() || !std::isdigit(text->front())) return otherwise;
  int64_t number = 0;
  for (; !text->empty() && std::isdigit(text->front()); text->remove_prefix(1))
    number = std::min(number * 10 + (text->front() - '0'), kTooLarge);
  return number;
}

bool TakeOne(std::string_view* text, std::string_view any, char* taken) {
  if (text->empty() || any.find(text->front()) == any.npos) return false;
  *taken = text->front();
  text->remove_prefix(1);
  return true;
}

// Inserts separators between groups of three digits before a point.
std::string GroupDigits(std::string digits, char separator) {
  const size_t end = std::min(digits.find_first_of(".e"), digits.size());
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
  return digits;
}

std::string FormatUnsigned(uint64_t number, unsigned base, bool upper) {
  const std::string_view symbols = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits += symbols[number % base];
    number /= base;
  } while (number > 0);
  std::ranges::reverse(digits);
  return digits;
}

// Returns the digits of an absolute value, and sets the prefix of its base.
std::string FormatInteger(int64_t value, const FormatSpec& spec, std::string* prefix) {
  const uint64_t size = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  constexpr std::pair<char, unsigned> kBases[] = {{'x', 16}, {'X', 16}, {'o', 8}, {'b', 2}};
  unsigned base = 10;
  for (const auto& [type, type_base] : kBases) {
    if (type == spec.type) base = type_base;
  }
  if (spec.alternate && base != 10) *prefix = {'0', spec.type};
  return FormatUnsigned(size, base, spec.type == 'X');
}

absl::StatusOr<std::string> FormatFloat(double value, const FormatSpec& spec) {
  if (spec.precision > kMaxPrecision) return Invalid("a precision of ", spec.precision, " is too large");
  if (spec.type == 0 && spec.precision < 0) return PrintFloat(std::abs(value));
  const bool percent = spec.type == '%';
  const char type = percent ? 'f' : spec.type == 0 || spec.type == 'n' ? 'g' : spec.type;
  const char format[] = {'%',
                         spec.alternate ? '#' : '.',
                         spec.alternate ? '.' : '*',
                         spec.alternate ? '*' : type,
                         spec.alternate ? type : '\0',
                         '\0'};
  char digits[700];
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  std::snprintf(digits, sizeof digits, format, precision, std::abs(percent ? value * 100 : value));
  std::string out = digits;
  if (spec.type == 0 && out.find_first_not_of("0123456789") == out.npos) out += ".0";
  return percent ? out + "%" : out;
}

absl::StatusOr<std::string> Pad(Interpreter& run, const std::string& sign, const std::string& digits,
                                const FormatSpec& spec, char default_align) {
  const char align = spec.align == 0 ? default_align : spec.align;
  if (align == '=') {
    const int64_t width = spec.width - CountChars(sign);
    ASSIGN_OR_RETURN(const std::string padded, Align(run, digits, width, spec.fill, Alignment::kRight));
    return sign + padded;
  }
  const Alignment alignment = align == '<' ? Alignment::kLeft : align == '>' ? Alignment::kRight : Alignment::kCenter;
  if (align != '^') return Align(run, sign + digits, spec.width, spec.fill, alignment);
  // Unlike str.center, format puts the odd space to the right.
  const int64_t padding = std::max<int64_t>(spec.width - CountChars(sign + digits), 0);
  const int64_t left = CountChars(sign + digits) + padding / 2;
  ASSIGN_OR_RETURN(const std::string half, Align(run, sign + digits, left, spec.fill, Alignment::kRight));
  return Align(run, half, spec.width, spec.fill, Alignment::kLeft);
}

absl::StatusOr<std::string> FormatNumber(Interpreter& run, const Value& value, const FormatSpec& spec) {
  const bool is_float = value.is_float() || std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  std::string prefix, digits;
  if (is_float && spec.type != 0 && std::string_view("dxXobc").find(spec.type) != std::string_view::npos)
    return Invalid("format code '", std::string(1, spec.type), "' for a float");
  if (is_float) {
    ASSIGN_OR_RETURN(digits, FormatFloat(*value.number(), spec));
  } else {
    digits = FormatInteger(*value.integer(), spec, &prefix);
  }
  if (spec.grouping != 0) digits = GroupDigits(std::move(digits), spec.grouping);
  const bool negative = is_float ? std::signbit(*value.number()) : *value.integer() < 0;
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return Pad(run, sign + prefix, digits, spec, '>');
}

absl::StatusOr<std::string> FormatText(Interpreter& run, const std::string& text, const FormatSpec& spec) {
  const size_t kept = spec.precision < 0 ? text.size() : FindCharOffset(text, spec.precision);
  return Pad(run, "", text.substr(0, kept), spec, '<');
}

// Formats one "%" field: flags, width, precision and type after an optional name.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& run, std::string_view format, const Value& value)
      : run_(run), format_(format), value_(value) {
    const Sequence* sequence = value.sequence();
    is_tuple_ = sequence != nullptr && sequence->kind == SequenceKind::kTuple;
    values_ = is_tuple_ ? Values(sequence->items) : Values{value};
  }

  absl::StatusOr<std::string> Run() {
    std::string out;
    while (!format_.empty()) {
      const size_t percent = std::min(format_.find('%'), format_.size());
      out += format_.substr(0, percent);
      format_.remove_prefix(percent);
      if (format_.empty()) break;
      format_.remove_prefix(1);
      ASSIGN_OR_RETURN(const std::string piece, FormatOne());
      out += piece;
      RETURN_IF_ERROR(run_.CheckBytes(std::ssize(out)));
    }
    const bool all_used = used_ == values_.size() || (!is_tuple_ && GetLength(value_) && value_.text() == nullptr);
    if (!all_used) return Invalid("not all arguments converted during string formatting");
    return out;
  }

 private:
  absl::StatusOr<std::string> FormatOne() {
    FormatSpec spec;
    std::optional<Value> named;
    if (format_.starts_with('(')) {
      ASSIGN_OR_RETURN(named, TakeNamed());
    }
    char flag = 0;
    bool zero = false;
    while (TakeOne(&format_, "#0- +", &flag)) ApplyFlag(flag, &spec, &zero);
    ASSIGN_OR_RETURN(spec.width, TakeSize(0));
    if (spec.width < 0) spec.align = '<';
    spec.width = std::abs(spec.width);
    if (TakeOne(&format_, ".", &flag)) {
      ASSIGN_OR_RETURN(spec.precision, TakeSize(0));
    }
    while (TakeOne(&format_, "hlL", &flag)) continue;
    if (!TakeOne(&format_, "%sradiuoxXeEfFgGc", &spec.type)) return Invalid("unsupported format character");
    if (spec.type == '%') return "%";
    if (!named && used_ == values_.size()) return Invalid("not enough arguments for format string");
    const Value value = named ? *named : values_[used_++];
    if (zero && spec.align == 0 && std::string_view("src").find(spec.type) == std::string_view::npos) {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    return Convert(value, spec);
  }

  static void ApplyFlag(char flag, FormatSpec* spec, bool* zero) {
    if (flag == '-') spec->align = '<';
    if (flag == '+' || (flag == ' ' && spec->sign != '+')) spec->sign = flag;
    spec->alternate |= flag == '#';
    *zero |= flag == '0';
  }

  absl::StatusOr<Value> TakeNamed() {
    const size_t end = format_.find(')');
    if (end == format_.npos || value_.dict() == nullptr) return Invalid("format requires a mapping");
    const std::string_view name = format_.substr(1, end - 1);
    const Value* item = value_.dict()->FindText(name);
    if (item == nullptr) return Invalid("the format needs '", Printable(name), "'");
    format_.remove_prefix(end + 1);
    return *item;
  }

  absl::StatusOr<int64_t> TakeSize(int64_t otherwise) {
    char star = 0;
    if (!TakeOne(&format_, "*", &star)) return TakeNumber(&format_, otherwise);
    if (used_ == values_.size() || !values_[used_].integer()) return Invalid("* wants int");
    return std::clamp<int64_t>(*values_[used_++].integer(), -1'000'000'000, 1'000'000'000);
  }

  absl::StatusOr<std::string> Convert(const Value& value, FormatSpec spec) {
    if (spec.align == 0) spec.align = '>';
    if (spec.type == 's') return FormatText(run_, Print(value), spec);
    if (spec.type == 'r' || spec.type == 'a') return FormatText(run_, PrintRepr(value), spec);
    if (spec.type == 'c') return FormatChar(value, spec);
    if (!value.is_number()) return Invalid("a number is required, not ", GetTypeName(value));
    if (std::string_view("diu").find(spec.type) != std::string_view::npos) {
      spec.type = 'd';
      const double number = std::trunc(*value.number());
      constexpr double kTooLarge = 9.2e18;
      if (!value.integer() && !(std::abs(number) < kTooLarge)) return Invalid("an integer exceeds 64 bits");
      return FormatNumber(run_, value.integer() ? *value.integer() : static_cast<int64_t>(number), spec);
    }
    return FormatNumber(run_, value, spec);
  }

  absl::StatusOr<std::string> FormatChar(const Value& value, const FormatSpec& spec) {
    if (value.text() != nullptr && CountChars(*value.text()) == 1) return FormatText(run_, *value.text(), spec);
    const int64_t c = value.integer().value_or(-1);
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return Invalid("%c requires a character");
    std::string text;
    AppendChar(static_cast<char32_t>(c), &text);
    return FormatText(run_, text, spec);
  }

  Interpreter& run_;
  std::string_view format_;
  const Value& value_;
  Values values_;
  size_t used_ = 0;
  bool is_tuple_ = false;
};

// Parses "[[fill]align][sign][#][0][width][grouping][.precision][type]".
absl::StatusOr<FormatSpec> ParseSpec(std::string_view text) {
  FormatSpec spec;
  constexpr std::string_view kAligns = "<>=^";
  const size_t fill = text.empty() ? 0 : CharBytes(text[0]);
  if (fill < text.size() && kAligns.find(text[fill]) != kAligns.npos) {
    spec.fill = text.substr(0, fill);
    text.remove_prefix(fill);
  }
  char taken = 0;
  TakeOne(&text, kAligns, &spec.align);
  TakeOne(&text, "+- ", &spec.sign);
  spec.alternate = TakeOne(&text, "#", &taken);
  if (TakeOne(&text, "0", &taken) && spec.align == 0) {
    spec.fill.assign(1, '0');
    spec.align = '=';
  }
  spec.width = TakeNumber(&text, 0);
  TakeOne(&text, ",_", &spec.grouping);
  if (TakeOne(&text, ".", &taken)) spec.precision = TakeNumber(&text, -1);
  TakeOne(&text, "sdbcoxXneEfFgG%", &spec.type);
  if (!text.empty()) return Invalid("invalid format specifier");
  return spec;
}

absl::StatusOr<std::string> FormatBySpec(Interpreter& run, const Value& value, std::string_view text) {
  if (text.empty()) return Print(value);
  ASSIGN_OR_RETURN(FormatSpec spec, ParseSpec(text));
  if (value.is_number() && spec.type != 's') return FormatNumber(run, value, spec);
  if (value.text() == nullptr || (spec.type != 0 && spec.type != 's') || spec.align == '=')
    return Invalid("invalid format specifier for '", GetTypeName(value), "'");
  return FormatText(run, *value.text(), spec);
}

// Replaces the fields of a str.format text.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& run, const CallArguments& arguments) : run_(run), arguments_(arguments) {}

  absl::StatusOr<std::string> Run(std::string_view format, int depth) {
    if (depth > 1) return Invalid("fields nest too deep");
    std::string out;
    while (!format.empty()) {
      const size_t brace = std::min(format.find_first_of("{}"), format.size());
      out += format.substr(0, brace);
      format.remove_prefix(brace);
      if (format.empty()) break;
      if (format.size() > 1 && format[0] == format[1]) {
        out += format[0];
        format.remove_prefix(2);
        continue;
      }
      const size_t end = FindFieldEnd(format);
      if (end == format.npos) return Invalid("a single brace in a format");
      ASSIGN_OR_RETURN(const std::string field, FormatField(format.substr(1, end - 1), depth));
      out += field;
      RETURN_IF_ERROR(run_.CheckBytes(std::ssize(out)));
      format.remove_prefix(end + 1);
    }
    return out;
  }

 private:
  static size_t FindFieldEnd(std::string_view format) {
    int open = 0;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] == '{') ++open;
      if (format[i] == '}' && --open <= 0) return open == 0 ? i : format.npos;
    }
    return format.npos;
  }

  absl::StatusOr<std::string> FormatField(std::string_view field, int depth) {
    const size_t end = std::min(field.find_first_of("!:"), field.size());
    ASSIGN_OR_RETURN(Value value, GetField(field.substr(0, end)));
    field.remove_prefix(end);
    if (field.starts_with('!')) {
      const char conversion = field.size() > 1 ? field[1] : 0;
      if (conversion != 's' && conversion != 'r') return Invalid("unknown conversion in a format");
      value = conversion == 's' ? Print(value) : PrintRepr(value);
      field.remove_prefix(2);
    }
    if (!field.empty()) field.remove_prefix(1);
    if (field.find('{') == field.npos) return FormatBySpec(run_, value, field);
    ASSIGN_OR_RETURN(const std::string spec, Run(field, depth + 1));
    return FormatBySpec(run_, value, spec);
  }

  // Looks up "name.attribute[key]".
  absl::StatusOr<Value> GetField(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    ASSIGN_OR_RETURN(Value value, GetArgument(path.substr(0, end)));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool is_item = path[0] == '[';
      const size_t stop = is_item ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (stop == path.npos || (!is_item && path[0] != '.')) return Invalid("a malformed field in a format");
      std::string_view name = path.substr(1, stop - 1);
      path.remove_prefix(stop + (is_item ? 1 : 0));
      const int64_t index = TakeNumber(&name, -1);
      const bool is_index = is_item && index >= 0 && name.empty();
      const Value key = is_index ? Value(index) : Value(name);
      ASSIGN_OR_RETURN(value, is_item ? GetItem(value, key) : GetAttribute(value, name));
    }
    return value;
  }

  absl::StatusOr<Value> GetArgument(std::string_view name) {
    std::string_view digits = name;
    const int64_t index = name.empty() ? next_++ : TakeNumber(&digits, -1);
    if (index >= 0 && (name.empty() || digits.empty())) {
      numbered_ |= !name.empty();
      if (numbered_ && next_ > 0) return Invalid("a format numbers some fields and not others");
      if (index >= std::ssize(arguments_.positional)) return Invalid("a format has more fields than arguments");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return Invalid("the format needs '", Printable(name), "'");
  }

  Interpreter& run_;
  const CallArguments& arguments_;
  int64_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

absl::StatusOr<std::string> FormatPercent(Interpreter& run, std::string_view format, const Value& value) {
  return PercentFormatter(run, format, value).Run();
}

absl::StatusOr<std::string> FormatBraces(Interpreter& run, std::string_view format, const CallArguments& arguments) {
  return BraceFormatter(run, arguments).Run(format, 0);
}

}  // namespace onnxtrain::jinja
