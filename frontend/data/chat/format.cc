// Implements "%" and str.format for the fields that templates use: "%s", "%02d", "%.2f", "{}", "{0}", "{name:.2f}".
#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr size_t kMaxDigits = 3;     // of a width or precision, with its point
constexpr size_t kMaxNumber = 1400;  // bytes of a printed one: 308 digits, a width and a precision

// How a field is printed: "-", "+", " " and "0", the width, "." and the precision, and the type: "%-8s", "%05.2f".
struct FieldForm {
  std::string flags, width, precision;  // of std::printf
  char type = 's';
};

absl::StatusOr<FieldForm> ReadForm(std::string_view text) {
  FieldForm form;
  const auto take = [&](std::string_view allowed, std::string* out) {
    const size_t end = std::min(text.find_first_not_of(allowed), text.size());
    *out = text.substr(0, end);
    text.remove_prefix(end);
  };
  take("-+ 0", &form.flags);
  take(kDigits, &form.width);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    take(kDigits, &form.precision);
    form.precision.insert(0, ".");
  }
  if (form.width.size() > kMaxDigits || form.precision.size() > kMaxDigits || text.size() != 1)
    return Invalid("unsupported format of a field");
  form.type = text[0];
  return form;
}

std::string FormatText(const FieldForm& form, std::string text) {
  if (!form.precision.empty()) {
    size_t end = 0;
    for (int count = std::atoi(form.precision.c_str() + 1); count > 0 && end < text.size(); --count)
      end += CharBytes(text[end]);
    text.resize(std::min(end, text.size()));
  }
  const int64_t missing = std::atoi(form.width.c_str()) - CountChars(text);
  if (missing <= 0) return text;
  const std::string blanks(static_cast<size_t>(missing), ' ');
  return form.flags.find('-') == form.flags.npos ? blanks + text : text + blanks;
}

absl::StatusOr<std::string> FormatField(const Value& value, const FieldForm& form) {
  constexpr std::string_view kReals = "feg";
  if (form.type == 's') return FormatText(form, Print(value));
  if (form.type == 'r') return FormatText(form, PrintRepr(value));
  const bool real = kReals.find(form.type) != kReals.npos;
  if (form.type != 'd' && !real)
    return Invalid("only the types s, r, d, f, e, g and % are supported, not '", PrintableLine({&form.type, 1}), "'");
  if (!value.is_number()) return Invalid("a number is required, not ", GetTypeName(value));
  char text[kMaxNumber];
  const std::string prefix = StrCat("%", form.flags, form.width, form.precision);
  if (real) {
    std::snprintf(text, sizeof text, StrCat(prefix, std::string(1, form.type)).c_str(), *value.number());
    return text;
  }
  constexpr double kTooLarge = 9.2e18;
  if (!value.integer() && !(std::abs(*value.number()) < kTooLarge)) return Invalid("an integer exceeds 64 bits");
  const int64_t whole = value.integer() ? *value.integer() : static_cast<int64_t>(*value.number());
  std::snprintf(text, sizeof text, StrCat(prefix, PRId64).c_str(), whole);
  return text;
}

// Returns the positional argument of this name, or the next one if it is empty, or the named one.
absl::StatusOr<Value> FindField(const CallArguments& arguments, std::string_view name, size_t* next) {
  size_t index = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool numbered = !name.empty() && parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  if (name.empty()) index = (*next)++;
  if (name.empty() || numbered) {
    if (index < arguments.positional.size()) return arguments.positional[index];
    return Invalid("a format has more fields than arguments");
  }
  const auto it = std::ranges::find_if(arguments.named, [&](const auto& argument) { return argument.first == name; });
  if (it != arguments.named.end()) return it->second;
  return Invalid("no argument is the field '", Printable(name), "', of which only names and numbers are supported");
}

// Prints a value as ":02d" says, or plainly after "".
absl::StatusOr<std::string> FormatAfterColon(const Value& value, std::string_view form) {
  if (form.size() <= 1) return Print(value);
  ASSIGN_OR_RETURN(FieldForm parsed, ReadForm(form.substr(1)));
  if (parsed.type == 's') parsed.flags += '-';  // str.format aligns text to the left
  return FormatField(value, parsed);
}

}  // namespace

absl::StatusOr<std::string> FormatPercent(Interpreter& run, std::string_view format, const Value& value) {
  const Sequence* sequence = value.sequence();
  const bool is_tuple = sequence != nullptr && sequence->kind == SequenceKind::kTuple;
  const Values values = is_tuple ? Values(sequence->items) : Values{value};
  std::string out;
  size_t used = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    if (++at == format.size()) return Invalid("incomplete format");
    if (format[at] == '%') {
      out += '%';
      continue;
    }
    if (used == values.size()) return Invalid("not enough arguments for format string");
    const size_t end = format.find_first_not_of("-+ .0123456789", at);
    if (end == format.npos) return Invalid("incomplete format");
    ASSIGN_OR_RETURN(const FieldForm form, ReadForm(format.substr(at, end + 1 - at)));
    ASSIGN_OR_RETURN(const std::string field, FormatField(values[used++], form));
    at = end;
    out += field;
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(out)));
  }
  const bool may_rest = !is_tuple && GetLength(value) && value.text() == nullptr;  // as for the list in '' % []
  if (used < values.size() && !may_rest) return Invalid("not all arguments converted during string formatting");
  return out;
}

absl::StatusOr<std::string> FormatBraces(Interpreter& run, std::string_view format, const CallArguments& arguments) {
  std::string out;
  size_t next = 0;
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
    const size_t end = format.find('}');
    if (format[0] == '}' || end == format.npos) return Invalid("a single brace in a format");
    const std::string_view field = format.substr(1, end - 1);
    const size_t colon = field.find(':');
    ASSIGN_OR_RETURN(const Value value, FindField(arguments, field.substr(0, colon), &next));
    ASSIGN_OR_RETURN(const std::string text, FormatAfterColon(value, field.substr(std::min(colon, field.size()))));
    out += text;
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(out)));
    format.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace onnxtrain::jinja
