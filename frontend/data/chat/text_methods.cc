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
  if (a.Get(0).is_none()) return Keep(self, std::string(Strip(*self.text(), std::nullopt, kSides)));
  ASSIGN_OR_RETURN(const std::string chars, a.GetText(0));
  return Keep(self, std::string(Strip(*self.text(), chars, kSides)));
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

std::vector<std::string_view> SplitAtSpacesFromRight(std::string_view text, int64_t limit) {
  std::vector<std::string_view> pieces;
  text = Strip(text, std::nullopt, kRight);
  for (; !text.empty(); --limit) {
    const size_t begin = limit == 0 ? 0 : FindLastWord(text);
    pieces.push_back(text.substr(begin));
    text = Strip(text.substr(0, begin), std::nullopt, kRight);
  }
  std::ranges::reverse(pieces);
  return pieces;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> pieces;
  for (; limit > 0; --limit) {
    const size_t at = text.find(separator);
    if (at == text.npos) break;
    pieces.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  pieces.push_back(text);
  return pieces;
}

std::vector<std::string_view> SplitAtFromRight(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> pieces;
  for (; limit > 0; --limit) {
    const size_t at = text.rfind(separator);
    if (at == text.npos) break;
    pieces.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  pieces.push_back(text);
  std::ranges::reverse(pieces);
  return pieces;
}

template <auto kAtSpaces, auto kAtText>
absl::StatusOr<Value> SplitMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t given, a.GetInteger(1, -1));
  const int64_t limit = given < 0 ? kAll : given;
  if (a.Get(0).is_none()) return ToList(self, kAtSpaces(*self.text(), limit));
  ASSIGN_OR_RETURN(const std::string separator, a.GetText(0));
  if (separator.empty()) return Invalid("empty separator");
  return ToList(self, kAtText(*self.text(), separator, limit));
}

absl::StatusOr<Value> SplitLinesMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  return ToList(self, SplitLines(*self.text(), a.IsTrue(0)));
}

template <bool kFromRight>
absl::StatusOr<Value> PartitionMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const std::string separator, a.GetText(0));
  if (separator.empty()) return Invalid("empty separator");
  const std::string& text = *self.text();
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at == text.npos && kFromRight) return MakeTuple({"", "", self});
  if (at == text.npos) return MakeTuple({self, "", ""});
  return MakeTuple({Keep(self, text.substr(0, at)), a.Get(0), Keep(self, text.substr(at + separator.size()))});
}

// Restricts a text to the characters [start, end) of further arguments. Sets the offset of its first character.
absl::StatusOr<std::string_view> Restrict(std::string_view text, const Bound& a, size_t first, int64_t* offset) {
  const int64_t length = CountChars(text);
  const auto resolve = [&](size_t i, int64_t otherwise) -> absl::StatusOr<int64_t> {
    if (a.Get(i).is_none()) return otherwise;
    ASSIGN_OR_RETURN(const int64_t index, a.GetInteger(i));
    return index < 0 ? std::max<int64_t>(std::max(index, -length) + length, 0) : index;
  };
  ASSIGN_OR_RETURN(*offset, resolve(first, 0));
  ASSIGN_OR_RETURN(const int64_t end, resolve(first + 1, length));
  if (*offset > length || *offset > end) return std::string_view();
  const size_t begin = FindCharOffset(text, *offset);
  return text.substr(begin, FindCharOffset(text.substr(begin), end - *offset));
}

// Returns the index of a text, or -1.
template <bool kFromRight>
absl::StatusOr<Value> FindMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  int64_t offset = 0;
  ASSIGN_OR_RETURN(const std::string part, a.GetText(0));
  ASSIGN_OR_RETURN(const std::string_view text, Restrict(*self.text(), a, 1, &offset));
  const size_t at = kFromRight ? text.rfind(part) : text.find(part);
  const bool beyond = text.data() == nullptr;
  return Value(at == text.npos || beyond ? int64_t{-1} : offset + CountChars(text.substr(0, at)));
}

template <bool kFromRight>
absl::StatusOr<Value> IndexMethod(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const Value at, FindMethod<kFromRight>(run, self, a));
  return *at.integer() < 0 ? absl::StatusOr<Value>(Invalid("substring not found")) : at;
}

absl::StatusOr<Value> CountMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  int64_t offset = 0;
  ASSIGN_OR_RETURN(const std::string part, a.GetText(0));
  ASSIGN_OR_RETURN(const std::string_view text, Restrict(*self.text(), a, 1, &offset));
  if (text.data() == nullptr) return Value(int64_t{0});
  if (part.empty()) return Value(CountChars(text) + 1);
  return Value(static_cast<int64_t>(SplitAt(text, part, kAll).size()) - 1);
}

template <bool kAtEnd>
absl::StatusOr<Value> AffixMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  int64_t offset = 0;
  ASSIGN_OR_RETURN(const std::string_view text, Restrict(*self.text(), a, 1, &offset));
  Values affixes = {a.Get(0)};
  if (const Sequence* tuple = affixes[0].sequence(); tuple != nullptr && tuple->kind == SequenceKind::kTuple)
    affixes = Values(tuple->items);
  for (const Value& affix : affixes) {
    if (affix.text() == nullptr) return Invalid("a string or a tuple of strings is expected");
    if (text.data() != nullptr && (kAtEnd ? text.ends_with(*affix.text()) : text.starts_with(*affix.text())))
      return Value(true);
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

// Returns true if a cased character has this case and none has the other.
template <uint8_t kClass>
absl::StatusOr<Value> CaseMethod(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  return Value(IsAllOfCase(*self.text(), kClass));
}

template <Alignment kAlignment>
absl::StatusOr<Value> AlignMethod(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t width, a.GetInteger(0));
  const std::string fill = a.Has(1) && a.Get(1).text() != nullptr ? *a.Get(1).text() : " ";
  if (CountChars(fill) != 1) return Invalid("the fill character must be exactly one character long");
  ASSIGN_OR_RETURN(std::string text, Align(run, *self.text(), width, fill, kAlignment));
  return Keep(self, std::move(text));
}

absl::StatusOr<Value> ZeroFillMethod(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t width, a.GetInteger(0));
  const std::string& text = *self.text();
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  ASSIGN_OR_RETURN(const std::string filled,
                   Align(run, text.substr(sign), width - static_cast<int64_t>(sign), "0", Alignment::kRight));
  return Keep(self, text.substr(0, sign) + filled);
}

constexpr Builtin kTextMethods[] = {
    {"strip", "chars?", StripMethod<kBoth>},
    {"lstrip", "chars?", StripMethod<kLeft>},
    {"rstrip", "chars?", StripMethod<kRight>},
    {"split", "sep? maxsplit?", SplitMethod<SplitAtSpaces, SplitAt>},
    {"rsplit", "sep? maxsplit?", SplitMethod<SplitAtSpacesFromRight, SplitAtFromRight>},
    {"splitlines", "keepends?", SplitLinesMethod},
    {"partition", "sep", PartitionMethod<false>},
    {"rpartition", "sep", PartitionMethod<true>},
    {"startswith", "prefix start? end?", AffixMethod<false>},
    {"endswith", "suffix start? end?", AffixMethod<true>},
    {"removeprefix", "prefix", RemoveAffixMethod<false>},
    {"removesuffix", "suffix", RemoveAffixMethod<true>},
    {"replace", "old new count?", ReplaceMethod},
    {"lower", "", MapCaseMethod<CaseMapping::kLower>},
    {"casefold", "", MapCaseMethod<CaseMapping::kLower>},
    {"upper", "", MapCaseMethod<CaseMapping::kUpper>},
    {"capitalize", "", MapCaseMethod<CaseMapping::kTitle>},
    {"title", "", TitleMethod},
    {"find", "sub start? end?", FindMethod<false>},
    {"rfind", "sub start? end?", FindMethod<true>},
    {"index", "sub start? end?", IndexMethod<false>},
    {"rindex", "sub start? end?", IndexMethod<true>},
    {"count", "sub start? end?", CountMethod},
    {"join", "iterable", JoinMethod},
    {"format", "*", FormatMethod},
    {"isalpha", "", AllMethod<kIsAlpha>},
    {"isdigit", "", AllMethod<kIsDigit>},
    {"isdecimal", "", AllMethod<kIsDecimal>},
    {"isnumeric", "", AllMethod<kIsNumeric>},
    {"isalnum", "", AllMethod<kIsAlpha | kIsNumeric>},
    {"isspace", "", AllMethod<kIsSpace>},
    {"isupper", "", CaseMethod<kIsUpper>},
    {"islower", "", CaseMethod<kIsLower>},
    {"center", "width fillchar?", AlignMethod<Alignment::kCenter>},
    {"ljust", "width fillchar?", AlignMethod<Alignment::kLeft>},
    {"rjust", "width fillchar?", AlignMethod<Alignment::kRight>},
    {"zfill", "width", ZeroFillMethod},
};

}  // namespace

std::span<const Builtin> TextMethods() { return kTextMethods; }

}  // namespace onnxtrain::jinja
