// Implements filters on numbers, and "%" and str.format for the fields that templates use: "%s", "%02d", "%.2f", "{}",
// "{0}", "{name:.2f}".
#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr size_t kMaxDigits = 3;     // of a width or precision, with its point
constexpr size_t kMaxNumber = 1400;  // bytes of a printed one: 308 digits, a width and a precision
constexpr double kTooLarge = 9.2e18;

// Formats a value by "-", "+", " " and "0", the width, "." and the precision, and the type: "%-8s", "%05.2f".
Value FormatField(Interpreter& run, const Value& value, std::string_view form, std::string_view more_flags = "") {
  const auto take = [&](std::string_view allowed) {
    const std::string_view taken = form.substr(0, form.find_first_not_of(allowed));
    form.remove_prefix(taken.size());
    return taken;
  };
  const std::string flags(take("-+ 0")), width(take(kDigits));
  const std::string point(form.starts_with('.') ? take(".").substr(0, 1) : "");
  const std::string precision = StrCat(point, take(kDigits));
  const bool is_text = form == "s" || form == "r", is_real = form == "f" || form == "e" || form == "g";
  if (width.size() > kMaxDigits || precision.size() > kMaxDigits || form.size() != 1)
    return run.Fail("unsupported format of a field");
  const std::string prefix = StrCat("%", flags, width, precision);
  if (is_text) {
    std::string text = form == "r" ? PrintRepr(value) : Print(value);
    if (!precision.empty()) text.resize(FindCharOffset(text, std::atoi(precision.c_str() + 1)));
    const std::string blanks(std::max<int64_t>(std::atoi(width.c_str()) - CountChars(text), 0), ' ');
    return StrCat(flags, more_flags).find('-') == flags.npos ? blanks + text : text + blanks;
  }
  if (form != "d" && !is_real)
    return run.Fail("only the types s, r, d, f, e, g and % are supported, not '", PrintableLine(form), "'");
  if (!value.is_number()) return run.Fail("a number is required, not ", GetTypeName(value));
  char text[kMaxNumber];
  if (is_real) {
    std::snprintf(text, sizeof text, StrCat(prefix, form).c_str(), *value.number());
    return text;
  }
  if (!value.integer() && !(std::abs(*value.number()) < kTooLarge)) return run.Fail("an integer exceeds 64 bits");
  const int64_t whole = value.integer() ? *value.integer() : static_cast<int64_t>(*value.number());
  std::snprintf(text, sizeof text, StrCat(prefix, PRId64).c_str(), whole);
  return text;
}

// Returns the positional argument of this name, or the next one if it is empty, or the named one.
Value FindField(const BuiltinCall& c, std::string_view name, size_t* next) {
  size_t index = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool numbered = !name.empty() && parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  if (name.empty()) index = (*next)++;
  const auto& [positional, named] = c.rest;
  if (name.empty() || numbered)
    return index < positional.size() ? positional[index] : c.run.Fail("a format has more fields than arguments");
  const auto it = std::ranges::find_if(named, [&](const auto& argument) { return argument.first == name; });
  if (it != named.end()) return it->second;
  return c.run.Fail("no argument is the field '", Printable(name), "', of which only names and numbers are supported");
}

// Parses a number with white space around it.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  text = Strip(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional<Number>(number) : std::nullopt;
}

std::optional<double> ReadFloat(const Value& value) {
  return value.text() != nullptr ? ParseNumber<double>(*value.text()) : value.number();
}

Value IntFilter(const BuiltinCall& c) {
  if (c.self.is_undefined()) return c.run.Fail(c.self.reason());
  const auto whole = c.self.text() != nullptr ? ParseNumber<int64_t>(*c.self.text()) : c.self.integer();
  if (whole) return *whole;
  const auto number = ReadFloat(c.self);
  if (!number || !std::isfinite(*number)) return c.Has(0) ? c.Get(0) : Value(int64_t{0});
  if (std::abs(*number) > kTooLarge) return c.run.Fail("an integer exceeds 64 bits");
  return static_cast<int64_t>(*number);
}

Value FloatFilter(const BuiltinCall& c) {
  if (c.self.is_undefined()) return c.run.Fail(c.self.reason());
  if (const auto number = ReadFloat(c.self)) return *number;
  return c.Has(0) ? c.Get(0) : Value(0.0);
}

Value AbsFilter(const BuiltinCall& c) {
  const bool negative = c.self.is_number() && *c.self.number() < 0;
  return negative ? Negate(c.run, c.self) : Add(c.run, c.self, int64_t{0});
}

// Rounds half to even, as Python does: the decimal digits of the exact number decide, not those of its multiple.
Value RoundFilter(const BuiltinCall& c) {
  constexpr int64_t kMaxPrecision = 300;
  const int64_t precision = c.Integer(0);
  if (!c.self.is_number()) return c.run.Fail("a number is expected, not '", GetTypeName(c.self), "'");
  if (precision < 0 || precision > kMaxPrecision) return c.run.Fail("a precision of ", precision, " is not supported");
  if (c.self.integer()) return c.self;
  char text[kMaxNumber];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(precision), *c.self.number());
  return std::strtod(text, nullptr);
}

Value FormatFilter(const BuiltinCall& c) { return Modulo(c.run, c.self, c.run.MakeTuple(c.rest.positional)); }

constexpr Builtin kNumberFilters[] = {
    {"int", "default?", IntFilter},
    {"float", "default?", FloatFilter},
    {"abs", "", AbsFilter},
    {"round", "precision?", RoundFilter},
    {"format", "*", FormatFilter, /*prints_self=*/true},
};

}  // namespace

std::span<const Builtin> NumberFilters() { return kNumberFilters; }

Value FormatPercent(Interpreter& run, const Value& text, const Value& value) {
  const bool is_tuple = value.sequence() != nullptr && value.sequence()->kind == SequenceKind::kTuple;
  const Values values = is_tuple ? value.sequence()->items : Values{value};
  std::string out;
  std::string_view format = *text.text();
  size_t used = 0;
  while (!run.failed()) {
    const size_t percent = format.find('%');
    out += format.substr(0, percent);
    if (percent == format.npos) break;
    format.remove_prefix(percent + 1);
    const size_t end = format.find_first_not_of("-+ .0123456789");
    if (end == format.npos) return run.Fail("incomplete format");
    if (format.starts_with('%')) {
      out += '%';
    } else if (used == values.size()) {
      run.Fail("not enough arguments for format string");
    } else {
      out += Print(FormatField(run, values[used++], format.substr(0, end + 1)));
    }
    format.remove_prefix(end + 1);
    run.CheckBytes(std::ssize(out));
  }
  const bool may_rest = !is_tuple && GetLength(value) && value.text() == nullptr;  // as for the list in '' % []
  if (used < values.size() && !may_rest) run.Fail("not all arguments converted during string formatting");
  return KeepMarkup(text, std::move(out));
}

Value FormatBraces(const BuiltinCall& c) {
  std::string out;
  std::string_view format = c.text();
  size_t next = 0;
  while (c.run.CheckBytes(std::ssize(out))) {
    const size_t brace = format.find_first_of("{}");
    out += format.substr(0, brace);
    if (brace == format.npos) break;
    format.remove_prefix(brace);
    if (format.size() > 1 && format[0] == format[1]) {
      out += format[0];
      format.remove_prefix(2);
      continue;
    }
    const size_t end = format.find('}');
    if (format[0] == '}' || end == format.npos) return c.run.Fail("a single brace in a format");
    const std::string_view field = format.substr(1, end - 1), name = field.substr(0, field.find(':'));
    const std::string_view form = field.substr(std::min(name.size() + 1, field.size()));
    const Value value = FindField(c, name, &next);
    // str.format aligns text to the left.
    out += Print(form.empty() ? value : FormatField(c.run, value, form, "-"));
    format.remove_prefix(end + 1);
  }
  return KeepMarkup(c.self, std::move(out));
}

}  // namespace onnxtrain::jinja
