// Implements "%" and str.format for the plain fields that templates use: "%s", "%d", "{}", "{0}" and "{name}".
#include <algorithm>
#include <charconv>
#include <cmath>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

absl::StatusOr<std::string> FormatPlain(const Value& value, char type) {
  if (type == 's') return Print(value);
  if (type == 'r') return PrintRepr(value);
  if (type != 'd') return Invalid("only %s, %r, %d and %% are supported, not '%", PrintableLine({&type, 1}), "'");
  if (!value.is_number()) return Invalid("a number is required, not ", GetTypeName(value));
  constexpr double kTooLarge = 9.2e18;
  if (value.integer()) return StrCat(*value.integer());
  if (!(std::abs(*value.number()) < kTooLarge)) return Invalid("an integer exceeds 64 bits");
  return StrCat(static_cast<int64_t>(*value.number()));
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
    ASSIGN_OR_RETURN(const std::string field, FormatPlain(values[used++], format[at]));
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
    ASSIGN_OR_RETURN(const Value value, FindField(arguments, format.substr(1, end - 1), &next));
    out += Print(value);
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(out)));
    format.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace onnxtrain::jinja
