// Implements Python's methods of strings, and the filters that return text.
#include <algorithm>
#include <limits>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

std::string_view FirstChar(std::string_view text) { return text.substr(0, CharBytes(text[0])); }

std::string_view LastChar(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return text.substr(at);
}

bool IsSpaceChar(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0x80) return first == ' ' || (first >= '\t' && first <= '\r') || (first >= 0x1c && first <= 0x1f);
  char32_t c = 0;
  DecodeChar(character, &c);
  return (GetCharClasses(c) & kIsSpace) != 0;
}

Value Keep(const BuiltinCall& c, std::string text) { return KeepMarkup(c.self, std::move(text)); }

template <StripSides kSides>
Value StripText(const BuiltinCall& c) {
  const auto chars = c.Get(0).is_none() ? std::nullopt : std::optional(c.Text(0));
  const std::string_view stripped = Strip(c.text(), chars, kSides);
  return stripped.size() == c.text().size() ? c.self : Keep(c, std::string(stripped));
}

template <CaseMapping kMapping>
Value MapTextCase(const BuiltinCall& c) {
  return Keep(c, MapCase(c.text(), kMapping));
}

// Starts words after spaces, hyphens and opening brackets with upper case.
Value TitleFilter(const BuiltinCall& c) {
  std::string out;
  bool starts = true;
  for (std::string_view rest = c.text(); !rest.empty(); rest.remove_prefix(FirstChar(rest).size())) {
    const std::string_view first = FirstChar(rest);
    const bool divides = Strip(first, "-({[<").empty() || IsSpaceChar(first);
    out += MapCase(first, starts && !divides ? CaseMapping::kUpper : CaseMapping::kLower);
    starts = divides;
  }
  return out;
}

Value ToList(const BuiltinCall& c, const std::vector<std::string_view>& pieces) {
  Values items;
  for (const std::string_view piece : pieces) items.push_back(Keep(c, std::string(piece)));
  return c.run.MakeList(std::move(items));
}

std::vector<std::string_view> SplitAtSpaces(std::string_view text, int64_t limit) {
  std::vector<std::string_view> pieces;
  text = Strip(text, {}, kLeft);
  for (; !text.empty(); --limit) {
    size_t end = limit == 0 ? text.size() : 0;
    while (end < text.size() && !IsSpaceChar(FirstChar(text.substr(end)))) end += CharBytes(text[end]);
    pieces.push_back(text.substr(0, end));
    text = Strip(text.substr(end), {}, kLeft);
  }
  return pieces;
}

// Splits at most `maxsplit` times, at the first or at the last occurrences of the separator.
template <bool kFromRight>
Value SplitText(const BuiltinCall& c) {
  const int64_t given = c.Integer(1, -1);
  int64_t limit = given < 0 ? kAll : given;
  std::string_view text = c.text();
  if (!kFromRight && c.Get(0).is_none()) return ToList(c, SplitAtSpaces(text, limit));
  const std::string_view separator = c.Text(0);
  if (separator.empty()) return c.run.Fail("empty separator");
  std::vector<std::string_view> pieces;
  for (; limit > 0; --limit) {
    const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
    if (at == text.npos) break;
    const std::string_view after = text.substr(at + separator.size()), before = text.substr(0, at);
    pieces.push_back(kFromRight ? after : before);
    text = kFromRight ? before : after;
  }
  pieces.push_back(text);
  if (kFromRight) std::ranges::reverse(pieces);
  return ToList(c, pieces);
}

// Splits at the line ends that Python recognizes.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  constexpr std::string_view kEnds[] = {"\r\n", "\n",   "\r",     "\v",     "\f",    "\x1c",
                                        "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"};
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto is_next = [&](std::string_view end) { return text.substr(at).starts_with(end); };
    const auto* end = std::ranges::find_if(kEnds, is_next);
    const size_t bytes = end == std::end(kEnds) ? CharBytes(text[at]) : end->size();
    if (end != std::end(kEnds)) {
      lines.push_back(text.substr(begin, at - begin + (keep_ends ? bytes : 0)));
      begin = at + bytes;
    }
    at += bytes;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

// Returns the index of a text, or -1.
template <bool kFromRight>
Value FindText(const BuiltinCall& c) {
  const std::string_view text = c.text(), part = c.Text(0);
  const size_t at = kFromRight ? text.rfind(part) : text.find(part);
  return at == text.npos ? int64_t{-1} : CountChars(text.substr(0, at));
}

template <bool kFromRight>
Value IndexText(const BuiltinCall& c) {
  Value at = FindText<kFromRight>(c);
  return *at.integer() < 0 ? c.run.Fail("substring not found") : at;
}

template <bool kFromRight>
Value PartitionText(const BuiltinCall& c) {
  const std::string_view text = c.text(), separator = c.Text(0);
  if (separator.empty()) return c.run.Fail("empty separator");
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at == text.npos) return c.run.MakeTuple(kFromRight ? Values{"", "", c.self} : Values{c.self, "", ""});
  return c.run.MakeTuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

// Returns how often a text occurs, without overlaps, up to a limit.
int64_t CountOccurrences(std::string_view text, std::string_view part, int64_t limit) {
  if (part.empty()) return std::min(limit, CountChars(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part); at != text.npos && count < limit; at = text.find(part, at + part.size())) ++count;
  return count;
}

template <bool kAtEnd>
bool HasAffix(std::string_view text, std::string_view affix) {
  return kAtEnd ? text.ends_with(affix) : text.starts_with(affix);
}

template <bool kAtEnd>
Value TestAffix(const BuiltinCall& c) {
  const Sequence* tuple = c.Get(0).sequence();
  const bool is_tuple = tuple != nullptr && tuple->kind == SequenceKind::kTuple;
  for (const Value& affix : is_tuple ? tuple->items : Values{c.Get(0)}) {
    if (affix.text() == nullptr) return c.run.Fail("a string or a tuple of strings is expected");
    if (HasAffix<kAtEnd>(c.text(), *affix.text())) return true;
  }
  return false;
}

template <bool kAtEnd>
Value RemoveAffix(const BuiltinCall& c) {
  const std::string_view affix = c.Text(0), text = c.text();
  const size_t removed = HasAffix<kAtEnd>(text, affix) ? affix.size() : 0;
  return Keep(c, std::string(text.substr(kAtEnd ? 0 : removed, text.size() - removed)));
}

// Replaces at most `count` occurrences, or all if it is negative.
std::string Replace(Interpreter& run, std::string_view text, std::string_view from, std::string_view to,
                    int64_t count) {
  const int64_t found = CountOccurrences(text, from, count < 0 ? kAll : count);
  constexpr int64_t kTooLarge = int64_t{1} << 40;
  const auto growth = std::max<int64_t>(std::ssize(to) - std::ssize(from), 0);
  if (growth > 0 && !run.CheckBytes(found > kTooLarge / growth ? kTooLarge : found * growth)) return "";
  std::string out;
  for (int64_t i = 0; i < found; ++i) {
    // The empty text occurs before each character and at the end.
    const size_t skipped = !from.empty() ? text.find(from) : i == 0 ? 0 : FirstChar(text).size();
    out += text.substr(0, skipped);
    out += to;
    text.remove_prefix(skipped + from.size());
  }
  return out += text;
}

Value ReplaceMethod(const BuiltinCall& c) {
  return Keep(c, Replace(c.run, c.text(), c.Text(0), c.Text(1), c.Integer(2, -1)));
}

Value ReplaceFilter(const BuiltinCall& c) {
  const int64_t count = c.Get(2).is_none() ? -1 : c.Integer(2);
  return Replace(c.run, c.text(), Print(c.Get(0)), Print(c.Get(1)), count);
}

Value JoinTexts(const BuiltinCall& c) {
  std::string out;
  const Values items = c.run.Get(ReadItems(c.Get(0)));
  for (const Value& item : items) {
    if (item.text() == nullptr) return c.run.Fail("a sequence item is '", GetTypeName(item), "', expected a string");
    if (&item != items.data()) out += c.text();
    out += c.self.is_markup() ? *Escape(item).text() : *item.text();
    if (!c.run.CheckBytes(std::ssize(out))) return {};
  }
  return Keep(c, std::move(out));
}

// Returns true if there are characters and all of them have one of the classes.
template <uint8_t kClasses>
Value AllHave(const BuiltinCall& c) {
  for (std::string_view rest = c.text(); !rest.empty();) {
    char32_t first = 0;
    rest.remove_prefix(DecodeChar(rest, &first));
    if ((GetCharClasses(first) & kClasses) == 0) return false;
  }
  return !c.text().empty();
}

Value IndentFilter(const BuiltinCall& c) {
  if (c.self.text() == nullptr) return c.run.Fail("a string is expected, not '", GetTypeName(c.self), "'");
  const std::string* given = c.Get(0).text();
  const int64_t width = given != nullptr ? 0 : std::max<int64_t>(c.Integer(0, 4), 0);
  if (!c.run.CheckBytes(width)) return {};
  const std::string indent = given != nullptr ? *given : std::string(width, ' ');
  const std::string text = c.text() + "\n";
  std::string out = c.IsTrue(1) ? indent : "";
  bool first = true;
  for (const std::string_view line : SplitLines(text, false)) {
    if (!first) out += !line.empty() || c.IsTrue(2) ? "\n" + indent : "\n";
    first = false;
    out += line;
    if (!c.run.CheckBytes(std::ssize(out))) return {};
  }
  return Keep(c, std::move(out));
}

constexpr Builtin kTextMethods[] = {
    {"strip", "chars?", StripText<kBoth>},
    {"lstrip", "chars?", StripText<kLeft>},
    {"rstrip", "chars?", StripText<kRight>},
    {"split", "sep? maxsplit?", SplitText<false>},
    {"rsplit", "sep maxsplit?", SplitText<true>},
    {"splitlines", "keepends?", [](const BuiltinCall& c) { return ToList(c, SplitLines(c.text(), c.IsTrue(0))); }},
    {"partition", "sep", PartitionText<false>},
    {"rpartition", "sep", PartitionText<true>},
    {"startswith", "prefix", TestAffix<false>},
    {"endswith", "suffix", TestAffix<true>},
    {"removeprefix", "prefix", RemoveAffix<false>},
    {"removesuffix", "suffix", RemoveAffix<true>},
    {"replace", "old new count?", ReplaceMethod},
    {"lower", "", MapTextCase<CaseMapping::kLower>},
    {"upper", "", MapTextCase<CaseMapping::kUpper>},
    {"capitalize", "", MapTextCase<CaseMapping::kTitle>},
    {"title", "", [](const BuiltinCall& c) { return Keep(c, TitleWords(c.text())); }},
    {"find", "sub", FindText<false>},
    {"rfind", "sub", FindText<true>},
    {"index", "sub", IndexText<false>},
    {"rindex", "sub", IndexText<true>},
    {"count", "sub", [](const BuiltinCall& c) -> Value { return CountOccurrences(c.text(), c.Text(0), kAll); }},
    {"join", "iterable", JoinTexts},
    {"format", "*", FormatBraces},
    {"isalpha", "", AllHave<kIsAlpha>},
    {"isdigit", "", AllHave<kIsDigit>},
    {"isalnum", "", AllHave<kIsAlpha | kIsNumeric>},
    {"isspace", "", AllHave<kIsSpace>},
};

constexpr bool kPrintsSelf = true;
constexpr Builtin kTextFilters[] = {
    {"upper", "", MapTextCase<CaseMapping::kUpper>, kPrintsSelf},
    {"lower", "", MapTextCase<CaseMapping::kLower>, kPrintsSelf},
    {"capitalize", "", MapTextCase<CaseMapping::kTitle>, kPrintsSelf},
    {"title", "", TitleFilter, kPrintsSelf},
    {"trim", "chars?", StripText<kBoth>, kPrintsSelf},
    {"replace", "old new count?", ReplaceFilter, kPrintsSelf},
    {"string", "", [](const BuiltinCall& c) { return c.self; }, kPrintsSelf},
    {"safe", "", [](const BuiltinCall& c) { return Value::MakeMarkup(c.text()); }, kPrintsSelf},
    {"escape", "", [](const BuiltinCall& c) { return Escape(c.self); }},
    {"e", "", [](const BuiltinCall& c) { return Escape(c.self); }},
    {"indent", "width? first? blank?", IndentFilter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", ToJson},
};

}  // namespace

std::string_view Strip(std::string_view text, std::optional<std::string_view> chars, StripSides sides) {
  const auto strips = [&](std::string_view c) { return chars ? chars->find(c) != chars->npos : IsSpaceChar(c); };
  while ((sides & kLeft) != 0 && !text.empty() && strips(FirstChar(text))) text.remove_prefix(FirstChar(text).size());
  while ((sides & kRight) != 0 && !text.empty() && strips(LastChar(text))) text.remove_suffix(LastChar(text).size());
  return text;
}

std::span<const Builtin> TextMethods() { return kTextMethods; }
std::span<const Builtin> TextFilters() { return kTextFilters; }

}  // namespace onnxtrain::jinja
