// Implements filters that return text or numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/text_functions.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

// Returns texts as they are, with their mark of HTML, and other values printed.
Value ToText(const Value& value) { return value.text() != nullptr ? value : Value(Print(value)); }

// Runs a method of strings on the printed value.
absl::StatusOr<Value> CallMethod(Interpreter& run, std::string_view method, const Value& self, const Bound& a) {
  CallArguments arguments = a.rest;
  for (const auto& value : a.values) {
    if (value) arguments.positional.push_back(*value);
  }
  return CallBuiltin(run, *FindBuiltin(TextMethods(), method), ToText(self), std::move(arguments));
}

absl::StatusOr<Value> UpperFilter(Interpreter& run, const Value& self, const Bound& a) {
  return CallMethod(run, "upper", self, a);
}
absl::StatusOr<Value> LowerFilter(Interpreter& run, const Value& self, const Bound& a) {
  return CallMethod(run, "lower", self, a);
}
absl::StatusOr<Value> CapitalizeFilter(Interpreter& run, const Value& self, const Bound& a) {
  return CallMethod(run, "capitalize", self, a);
}
absl::StatusOr<Value> TrimFilter(Interpreter& run, const Value& self, const Bound& a) {
  return CallMethod(run, "strip", self, a);
}

// Starts words after spaces, hyphens and opening brackets with upper case.
absl::StatusOr<Value> TitleFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  const std::string text = Print(self);
  std::string out;
  bool starts = true;
  for (size_t at = 0; at < text.size();) {
    const std::string_view c = std::string_view(text).substr(at, CharBytes(text[at]));
    const bool divides = Strip(c, "-({[<", kBoth).empty() || Strip(c, std::nullopt, kBoth).empty();
    out += MapCase(c, starts && !divides ? CaseMapping::kUpper : CaseMapping::kLower);
    starts = divides;
    at += c.size();
  }
  return Value(std::move(out));
}

absl::StatusOr<Value> ReplaceFilter(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t count, a.Get(2).is_none() ? absl::StatusOr<int64_t>(-1) : a.GetInteger(2));
  ASSIGN_OR_RETURN(std::string text, Replace(run, Print(self), Print(a.Get(0)), Print(a.Get(1)), count));
  return Value(std::move(text));
}

absl::StatusOr<Value> IndentFilter(Interpreter& run, const Value& self, const Bound& a) {
  if (self.text() == nullptr) return Invalid("a string is expected, not '", GetTypeName(self), "'");
  std::string indent;
  if (a.Get(0).text() != nullptr) {
    indent = *a.Get(0).text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, a.GetInteger(0, 4));
    RETURN_IF_ERROR(run.CheckBytes(width));
    indent.assign(std::max<int64_t>(width, 0), ' ');
  }
  const std::string text = *self.text() + "\n";
  std::string out = a.IsTrue(1) ? indent : "";
  bool first = true;
  for (const std::string_view line : SplitLines(text, false)) {
    if (!first) out += !line.empty() || a.IsTrue(2) ? "\n" + indent : "\n";
    first = false;
    out += line;
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(out)));
  }
  return self.is_markup() ? MakeMarkup(std::move(out)) : Value(std::move(out));
}

absl::StatusOr<Value> EscapeFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) { return Escape(self); }
absl::StatusOr<Value> ForceEscapeFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  return Escape(Print(self));
}
absl::StatusOr<Value> SafeFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  return MakeMarkup(Print(self));
}
absl::StatusOr<Value> StringFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) { return ToText(self); }

absl::StatusOr<Value> CenterFilter(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t width, a.GetInteger(0, 80));
  ASSIGN_OR_RETURN(std::string text, Align(run, Print(self), width, " ", Alignment::kCenter));
  return Value(std::move(text));
}

absl::StatusOr<Value> WordCountFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  const std::string text = Print(self);
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    at += DecodeChar(std::string_view(text).substr(at), &c);
    const bool is_word = c == '_' || (GetCharClasses(c) & (kIsAlpha | kIsNumeric)) != 0;
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value(words);
}

absl::StatusOr<Value> WordWrapFilter(Interpreter& run, const Value& self, const Bound& a) {
  if (self.text() == nullptr) return Invalid("a string is expected, not '", GetTypeName(self), "'");
  WordWrap wrap{.break_long_words = a.IsTrue(1, true), .at_hyphens = a.IsTrue(3, true)};
  ASSIGN_OR_RETURN(wrap.width, a.GetInteger(0, wrap.width));
  if (!a.Get(2).is_none()) {
    ASSIGN_OR_RETURN(wrap.separator, a.GetText(2));
  }
  ASSIGN_OR_RETURN(std::string text, WrapWords(run, *self.text(), wrap));
  return Value(std::move(text));
}

absl::StatusOr<Value> TruncateFilter(Interpreter& /*run*/, const Value& self, const Bound& a) {
  if (!GetLength(self)) return Invalid("'", GetTypeName(self), "' object has no length");
  const std::string text = Print(self), end = a.Has(2) ? Print(a.Get(2)) : "...";
  ASSIGN_OR_RETURN(const int64_t length, a.GetInteger(0, 255));
  ASSIGN_OR_RETURN(const int64_t leeway, a.Get(3).is_none() ? absl::StatusOr<int64_t>(5) : a.GetInteger(3));
  const int64_t kept = length - CountChars(end);
  if (kept < 0 || leeway < 0) return Invalid("the length must be at least that of the end");
  if (CountChars(text) - leeway <= length) return Value(text);
  std::string out = text.substr(0, FindCharOffset(text, kept));
  if (!a.IsTrue(1)) out = out.substr(0, out.rfind(' '));
  return Value(out + end);
}

absl::StatusOr<Value> FormatFilter(Interpreter& run, const Value& self, const Bound& a) {
  const bool named = !a.rest.named.empty();
  if (named && !a.rest.positional.empty()) return Invalid("positional and named arguments cannot be mixed");
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : a.rest.named) RETURN_IF_ERROR(dict->Set(name, value));
  ASSIGN_OR_RETURN(const Value tuple, MakeTuple(a.rest.positional));
  const Value values = named ? Value(std::shared_ptr<const Dict>(std::move(dict))) : tuple;
  return Modulo(run, ToText(self), values);
}

absl::StatusOr<std::optional<std::string>> GetJsonIndent(const Bound& a) {
  constexpr int64_t kMaxIndent = 1000;
  if (a.Get(1).is_none()) return std::nullopt;
  if (a.Get(1).text() != nullptr && std::ssize(*a.Get(1).text()) <= kMaxIndent) return *a.Get(1).text();
  ASSIGN_OR_RETURN(const int64_t width, a.GetInteger(1));
  if (width > kMaxIndent) return Invalid("an indent of more than ", kMaxIndent, " characters is refused");
  return std::string(std::max<int64_t>(width, 0), ' ');
}

absl::StatusOr<Value> ToJsonFilter(Interpreter& run, const Value& self, const Bound& a) {
  JsonStyle style = {.ascii = a.IsTrue(0), .sort_keys = a.IsTrue(3)};
  ASSIGN_OR_RETURN(style.indent, GetJsonIndent(a));
  if (style.indent) style.comma.pop_back();  // the space, since a line ends there
  if (!a.Get(2).is_none()) {
    ASSIGN_OR_RETURN(const Values separators, ReadItems(a.Get(2)));
    if (separators.size() != 2 || separators[0].text() == nullptr || separators[1].text() == nullptr)
      return Invalid("separators must be two strings");
    style.comma = *separators[0].text();
    style.colon = *separators[1].text();
  }
  ASSIGN_OR_RETURN(std::string text, WriteJsonText(run, self, style));
  return Value(std::move(text));
}

// Cleans a number that Python's int and float accept, with white space around it and underscores between digits.
std::optional<std::string> CleanNumber(std::string_view text) {
  std::string digits(Strip(text, std::nullopt, kBoth));
  for (size_t i = 0; i < digits.size(); ++i) {
    const auto is_digit = [&](size_t at) { return at < digits.size() && std::isxdigit(digits[at]) != 0; };
    if (digits[i] == '_' && (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))) return std::nullopt;
  }
  std::erase(digits, '_');
  if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') digits.erase(0, 1);
  return digits.empty() ? std::nullopt : std::optional<std::string>(digits);
}

std::optional<int64_t> ParseInteger(std::string_view text, int base) {
  auto digits = CleanNumber(text);
  if (!digits || base < 2 || base > 36) return std::nullopt;
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  if (!prefix.empty() && MapCase(*digits, CaseMapping::kLower).starts_with(prefix)) digits->erase(0, 2);
  int64_t number = 0;
  const char* end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data(), end, number, base);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional<int64_t>(number) : std::nullopt;
}

std::optional<double> ParseFloat(std::string_view text) {
  const auto digits = CleanNumber(text);
  if (!digits) return std::nullopt;
  double number = 0;
  const char* end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional<double>(number) : std::nullopt;
}

std::optional<double> ReadFloat(const Value& value) {
  return value.text() != nullptr ? ParseFloat(*value.text()) : value.number();
}

absl::StatusOr<Value> IntFilter(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t base, a.GetInteger(1, 10));
  if (self.is_undefined()) return Invalid(*self.undefined()->reason);
  if (self.integer()) return Value(*self.integer());
  if (self.text() != nullptr) {
    if (const auto number = ParseInteger(*self.text(), static_cast<int>(std::clamp<int64_t>(base, 0, 99))))
      return Value(*number);
  }
  const auto number = ReadFloat(self);
  if (!number || !std::isfinite(*number)) return a.Has(0) ? a.Get(0) : Value(int64_t{0});
  constexpr double kTooLarge = 9.2e18;
  if (std::abs(*number) > kTooLarge) return Invalid("an integer exceeds 64 bits");
  return Value(static_cast<int64_t>(*number));
}

absl::StatusOr<Value> FloatFilter(Interpreter& /*run*/, const Value& self, const Bound& a) {
  if (self.is_undefined()) return Invalid(*self.undefined()->reason);
  if (const auto number = ReadFloat(self)) return Value(*number);
  return a.Has(0) ? a.Get(0) : Value(0.0);
}

absl::StatusOr<Value> AbsFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  const bool negative = self.is_number() && *self.number() < 0;
  return negative ? Negate(self) : KeepSign(self);
}

absl::StatusOr<Value> RoundFilter(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t precision, a.GetInteger(0));
  const std::string method = a.Has(1) ? Print(a.Get(1)) : "common";
  constexpr std::pair<std::string_view, double (*)(double)> kMethods[] = {{"ceil", std::ceil}, {"floor", std::floor}};
  constexpr int64_t kMaxPrecision = 300;
  if (!self.is_number()) return Invalid("a number is expected, not '", GetTypeName(self), "'");
  if (std::abs(precision) > kMaxPrecision) return Invalid("a precision of ", precision, " is too large");
  const double scale = std::pow(10.0, static_cast<double>(precision)), number = *self.number();
  for (const auto& [name, function] : kMethods) {
    if (method == name) return Value(function(number * scale) / scale);
  }
  if (method != "common") return Invalid("the method must be common, ceil or floor");
  if (self.integer() && precision >= 0) return Value(*self.integer());
  if (precision < 0) {
    const double rounded = std::nearbyint(number * scale) / scale;
    return self.integer() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  char digits[700];
  std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(precision), number);
  return Value(std::strtod(digits, nullptr));
}

constexpr Builtin kTextFilters[] = {
    {"upper", "", UpperFilter},
    {"lower", "", LowerFilter},
    {"capitalize", "", CapitalizeFilter},
    {"title", "", TitleFilter},
    {"trim", "chars?", TrimFilter},
    {"replace", "old new count?", ReplaceFilter},
    {"indent", "width? first? blank?", IndentFilter},
    {"escape", "", EscapeFilter},
    {"e", "", EscapeFilter},
    {"forceescape", "", ForceEscapeFilter},
    {"safe", "", SafeFilter},
    {"string", "", StringFilter},
    {"center", "width?", CenterFilter},
    {"wordcount", "", WordCountFilter},
    {"wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", WordWrapFilter},
    {"truncate", "length? killwords? end? leeway?", TruncateFilter},
    {"format", "*", FormatFilter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", ToJsonFilter},
    {"int", "default? base?", IntFilter},
    {"float", "default?", FloatFilter},
    {"abs", "", AbsFilter},
    {"round", "precision? method?", RoundFilter},
};

}  // namespace

std::span<const Builtin> TextFilters() { return kTextFilters; }

}  // namespace onnxtrain::jinja
