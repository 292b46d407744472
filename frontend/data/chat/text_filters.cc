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

constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize", kStrip[] = "strip";

// Runs a method of strings, which has the same parameters, on the printed value.
template <const char* kMethod>
absl::StatusOr<Value> MethodFilter(Interpreter& run, const Value& self, const Bound& a) {
  static const Builtin& method = *FindBuiltin(TextMethods(), kMethod);
  return method.run(run, ToText(self), a);
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
absl::StatusOr<Value> SafeFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  return MakeMarkup(Print(self));
}
absl::StatusOr<Value> StringFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) { return ToText(self); }

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

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  const auto digits = CleanNumber(text);
  if (!digits) return std::nullopt;
  Number number = 0;
  const char* end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional<Number>(number) : std::nullopt;
}

std::optional<double> ReadFloat(const Value& value) {
  return value.text() != nullptr ? ParseNumber<double>(*value.text()) : value.number();
}

absl::StatusOr<Value> IntFilter(Interpreter& /*run*/, const Value& self, const Bound& a) {
  if (self.is_undefined()) return Invalid(self.reason());
  if (self.integer()) return Value(*self.integer());
  if (self.text() != nullptr) {
    if (const auto number = ParseNumber<int64_t>(*self.text())) return Value(*number);
  }
  const auto number = ReadFloat(self);
  if (!number || !std::isfinite(*number)) return a.Has(0) ? a.Get(0) : Value(int64_t{0});
  constexpr double kTooLarge = 9.2e18;
  if (std::abs(*number) > kTooLarge) return Invalid("an integer exceeds 64 bits");
  return Value(static_cast<int64_t>(*number));
}

absl::StatusOr<Value> FloatFilter(Interpreter& /*run*/, const Value& self, const Bound& a) {
  if (self.is_undefined()) return Invalid(self.reason());
  if (const auto number = ReadFloat(self)) return Value(*number);
  return a.Has(0) ? a.Get(0) : Value(0.0);
}

absl::StatusOr<Value> AbsFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  const bool negative = self.is_number() && *self.number() < 0;
  return negative ? Negate(self) : KeepSign(self);
}

absl::StatusOr<Value> FormatFilter(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const Value values, MakeTuple(a.rest.positional));
  return Modulo(run, ToText(self), values);
}

// Rounds half to even, as Python does, or with `method` up or down.
absl::StatusOr<Value> RoundFilter(Interpreter& run, const Value& self, const Bound& a) {
  constexpr std::pair<std::string_view, double (*)(double)> kMethods[] = {
      {"common", std::nearbyint}, {"ceil", std::ceil}, {"floor", std::floor}};
  constexpr int64_t kMaxPrecision = 300;
  ASSIGN_OR_RETURN(const int64_t precision, a.GetInteger(0, 0));
  const std::string name = a.Get(1).is_none() ? "common" : Print(a.Get(1));
  const auto* method = std::ranges::find(kMethods, name, [](const auto& row) { return row.first; });
  if (method == std::end(kMethods)) return Invalid("the method must be common, ceil or floor");
  if (!self.is_number()) return Invalid("a number is expected, not '", GetTypeName(self), "'");
  if (std::abs(precision) > kMaxPrecision) return Invalid("a precision of ", precision, " is too large");
  if (name == "common" && self.integer() && precision >= 0) return self;
  if (name == "common" && precision >= 0) {
    // The decimal digits of the exact number decide, not those of its multiple.
    ASSIGN_OR_RETURN(const std::string digits,
                     FormatPercent(run, StrCat("%.", std::min<int64_t>(precision, 99), "f"), self));
    return Value(std::strtod(digits.c_str(), nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double rounded = method->second(*self.number() * scale) / scale;
  return name == "common" && self.integer() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
}

constexpr Builtin kTextFilters[] = {
    {"upper", "", MethodFilter<kUpper>},
    {"lower", "", MethodFilter<kLower>},
    {"capitalize", "", MethodFilter<kCapitalize>},
    {"title", "", TitleFilter},
    {"trim", "chars?", MethodFilter<kStrip>},
    {"replace", "old new count?", ReplaceFilter},
    {"indent", "width? first? blank?", IndentFilter},
    {"escape", "", EscapeFilter},
    {"e", "", EscapeFilter},
    {"safe", "", SafeFilter},
    {"string", "", StringFilter},
    {"format", "*", FormatFilter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", ToJsonFilter},
    {"int", "default?", IntFilter},
    {"float", "default?", FloatFilter},
    {"abs", "", AbsFilter},
    {"round", "precision? method?", RoundFilter},
};

}  // namespace

std::span<const Builtin> TextFilters() { return kTextFilters; }

}  // namespace onnxtrain::jinja
