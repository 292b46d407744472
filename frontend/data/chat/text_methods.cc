// Implements Python's methods of strings.
#include <algorithm>
#include <limits>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/text_functions.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// Returns a text that is marked as HTML if `self` is.
Value Keep(const Value& self, std::string text) {
  return self.is_markup() ? MakeMarkup(std::move(text)) : Value(std::move(text));
}

template <StripSides kSides>
absl::StatusOr<Value> StripMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  std::optional<std::string> chars;
  if (!a.Get(0).is_none()) {
    ASSIGN_OR_RETURN(chars, a.GetText(0));
  }
  const std::string_view stripped = Strip(*self.text(), chars, kSides);
  return stripped.size() == self.text()->size() ? self : Keep(self, std::string(stripped));
}

template <CaseMapping kMapping>
absl::StatusOr<Value> MapCaseMethod(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  return Keep(self, MapCase(*self.text(), kMapping));
}

absl::StatusOr<Value> TitleMethod(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  return Keep(self, TitleWords(*self.text()));
}

absl::StatusOr<Value> ToList(const Value& self, const std::vector<std::string_view>& pieces) {
  Values items;
  for (const std::string_view piece : pieces) items.push_back(Keep(self, std::string(piece)));
  return MakeList(std::move(items));
}

std::vector<std::string_view> SplitAtSpaces(std::string_view text, int64_t limit) {
  std::vector<std::string_view> pieces;
  text = Strip(text, std::nullopt, kLeft);
  for (; !text.empty(); --limit) {
    const size_t end = limit == 0 ? text.size() : FindSpace(text);
    pieces.push_back(text.substr(0, end));
    text = Strip(text.substr(end), std::nullopt, kLeft);
  }
  return pieces;
}

// Splits at most `limit` times, at the first or at the last occurrences of the separator.
template <bool kFromRight>
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t limit) {
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
  return pieces;
}

template <bool kFromRight>
absl::StatusOr<Value> SplitMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t given, a.GetInteger(1, -1));
  const int64_t limit = given < 0 ? kAll : given;
  if (!kFromRight && a.Get(0).is_none()) return ToList(self, SplitAtSpaces(*self.text(), limit));
  ASSIGN_OR_RETURN(const std::string separator, a.GetText(0));
  if (separator.empty()) return Invalid("empty separator");
  return ToList(self, SplitAt<kFromRight>(*self.text(), separator, limit));
}

absl::StatusOr<Value> SplitLinesMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  return ToList(self, SplitLines(*self.text(), a.IsTrue(0)));
}

// Returns the index of a text, or -1.
template <bool kFromRight>
absl::StatusOr<Value> FindMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const std::string part, a.GetText(0));
  const std::string_view text = *self.text();
  const size_t at = kFromRight ? text.rfind(part) : text.find(part);
  return Value(at == text.npos ? int64_t{-1} : CountChars(text.substr(0, at)));
}

absl::StatusOr<Value> CountMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const std::string part, a.GetText(0));
  return Value(CountOccurrences(*self.text(), part, kAll));
}

template <bool kAtEnd>
absl::StatusOr<Value> AffixMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  Values affixes = {a.Get(0)};
  if (const Sequence* tuple = affixes[0].sequence(); tuple != nullptr && tuple->kind == SequenceKind::kTuple)
    affixes = Values(tuple->items);
  for (const Value& affix : affixes) {
    if (affix.text() == nullptr) return Invalid("a string or a tuple of strings is expected");
    if (kAtEnd ? self.text()->ends_with(*affix.text()) : self.text()->starts_with(*affix.text())) return Value(true);
  }
  return Value(false);
}

template <bool kAtEnd>
absl::StatusOr<Value> RemoveAffixMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const std::string affix, a.GetText(0));
  const std::string& text = *self.text();
  if (kAtEnd) return Keep(self, text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
  return Keep(self, text.starts_with(affix) ? text.substr(affix.size()) : text);
}

absl::StatusOr<Value> ReplaceMethod(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const std::string from, a.GetText(0));
  ASSIGN_OR_RETURN(const std::string to, a.GetText(1));
  ASSIGN_OR_RETURN(const int64_t count, a.GetInteger(2, -1));
  ASSIGN_OR_RETURN(std::string text, Replace(run, *self.text(), from, to, count));
  return Keep(self, std::move(text));
}

absl::StatusOr<Value> JoinMethod(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const Values items, ReadItems(a.Get(0)));
  std::string out;
  for (const Value& item : items) {
    if (item.text() == nullptr) return Invalid("a sequence item is '", GetTypeName(item), "', expected a string");
    if (&item != items.data()) out += *self.text();
    out += self.is_markup() ? *Escape(item).text() : *item.text();
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(out)));
  }
  return Keep(self, std::move(out));
}

absl::StatusOr<Value> FormatMethod(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(std::string text, FormatBraces(run, *self.text(), a.rest));
  return Keep(self, std::move(text));
}

// Returns true if there are characters and all of them have one of the classes.
template <uint8_t kClasses>
absl::StatusOr<Value> AllMethod(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  for (size_t at = 0; at < self.text()->size();) {
    char32_t c = 0;
    at += DecodeChar(std::string_view(*self.text()).substr(at), &c);
    if ((GetCharClasses(c) & kClasses) == 0) return Value(false);
  }
  return Value(!self.text()->empty());
}

template <bool kFromRight>
absl::StatusOr<Value> PartitionMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const std::string separator, a.GetText(0));
  if (separator.empty()) return Invalid("empty separator");
  const std::string& text = *self.text();
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at == text.npos) return kFromRight ? MakeTuple({"", "", self}) : MakeTuple({self, "", ""});
  return MakeTuple({text.substr(0, at), a.Get(0), text.substr(at + separator.size())});
}

template <bool kFromRight>
absl::StatusOr<Value> IndexMethod(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const Value at, FindMethod<kFromRight>(run, self, a));
  return *at.integer() < 0 ? absl::StatusOr<Value>(Invalid("substring not found")) : at;
}

constexpr Builtin kTextMethods[] = {
    {"strip", "chars?", StripMethod<kBoth>},
    {"lstrip", "chars?", StripMethod<kLeft>},
    {"rstrip", "chars?", StripMethod<kRight>},
    {"split", "sep? maxsplit?", SplitMethod<false>},
    {"rsplit", "sep maxsplit?", SplitMethod<true>},
    {"splitlines", "keepends?", SplitLinesMethod},
    {"partition", "sep", PartitionMethod<false>},
    {"rpartition", "sep", PartitionMethod<true>},
    {"startswith", "prefix", AffixMethod<false>},
    {"endswith", "suffix", AffixMethod<true>},
    {"removeprefix", "prefix", RemoveAffixMethod<false>},
    {"removesuffix", "suffix", RemoveAffixMethod<true>},
    {"replace", "old new count?", ReplaceMethod},
    {"lower", "", MapCaseMethod<CaseMapping::kLower>},
    {"upper", "", MapCaseMethod<CaseMapping::kUpper>},
    {"capitalize", "", MapCaseMethod<CaseMapping::kTitle>},
    {"title", "", TitleMethod},
    {"find", "sub", FindMethod<false>},
    {"rfind", "sub", FindMethod<true>},
    {"index", "sub", IndexMethod<false>},
    {"rindex", "sub", IndexMethod<true>},
    {"count", "sub", CountMethod},
    {"join", "iterable", JoinMethod},
    {"format", "*", FormatMethod},
    {"isalpha", "", AllMethod<kIsAlpha>},
    {"isdigit", "", AllMethod<kIsDigit>},
    {"isalnum", "", AllMethod<kIsAlpha | kIsNumeric>},
    {"isspace", "", AllMethod<kIsSpace>},
};

}  // namespace

std::span<const Builtin> TextMethods() { return kTextMethods; }

}  // namespace onnxtrain::jinja
