#include "frontend/data/chat/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "frontend/base/units.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr size_t kMostScanned = 8;  // items of a mapping that are searched one by one
constexpr int64_t kBytesPerWeight = 64;
constexpr std::string_view kSequenceTypes[] = {"list",        "tuple",      "range",    "dict_keys",
                                               "dict_values", "dict_items", "generator"};

// Extends the extent of a container by an item.
void Include(const Value& item, Extent* extent) {
  const Extent inner = GetExtent(item);
  extent->depth = std::max(extent->depth, inner.depth + 1);
  extent->weight += inner.weight;
}

absl::Status CheckExtent(const Extent& extent) {
  if (extent.depth > kMaxValueDepth) return Invalid("a value nests more than ", kMaxValueDepth, " deep");
  return extent.weight <= kMaxValueWeight ? absl::OkStatus() : Invalid("a list or mapping becomes too large");
}

// Returns the exact order of two numbers.
std::partial_ordering CompareNumbers(const Value& a, const Value& b) {
  if (a.integer() && b.integer()) return *a.integer() <=> *b.integer();
  const auto widen = [](const Value& v) -> long double { return v.is_float() ? *v.number() : *v.integer(); };
  return widen(a) <=> widen(b);
}

bool AreEqualDicts(const Dict& a, const Dict& b) {
  return a.items.size() == b.items.size() && std::ranges::all_of(a.items, [&](const auto& item) {
           const Value* other = b.Find(item.first);
           return other != nullptr && IsEqual(item.second, *other);
         });
}

std::string QuoteText(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t bytes = DecodeChar(text.substr(at), &c);
    const size_t known = c < 0x80 ? std::string_view("\n\r\t\\").find(static_cast<char>(c)) : text.npos;
    if (known != text.npos) {
      out.append({'\\', "nrt\\"[known]});
    } else if (c == static_cast<unsigned char>(quote)) {
      out.append({'\\', quote});
    } else if (IsPrintable(c)) {
      out += text.substr(at, bytes);
    } else {
      char digits[16];
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      out.append(digits, std::snprintf(digits, sizeof digits, format, static_cast<unsigned>(c)));
    }
    at += bytes;
  }
  return out + quote;
}

std::string PrintFloat(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  constexpr double kFixedBelow = 1e16, kFixedFrom = 1e-4;
  const double size = std::abs(number);
  const bool fixed = size == 0 || (size >= kFixedFrom && size < kFixedBelow);
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, number,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(digits, end.ptr);
  if (fixed && out.find('.') == out.npos) out += ".0";
  return out;
}

std::string PrintDict(const Dict& dict) {
  std::string out;
  for (const auto& [key, value] : dict.items)
    StrAppend(&out, out.empty() ? "" : ", ", PrintRepr(ReadKey(key)), ": ", PrintRepr(value));
  return StrCat("{", out, "}");
}

std::string PrintSequence(const Sequence& sequence) {
  const auto& [start, stop, step] = sequence.range;
  if (sequence.kind == SequenceKind::kGenerator) return "<generator object>";
  if (sequence.kind == SequenceKind::kRange)
    return StrCat("range(", start, ", ", stop, step == 1 ? "" : StrCat(", ", step), ")");
  std::string out;
  for (const Value& item : sequence.items) StrAppend(&out, out.empty() ? "" : ", ", PrintRepr(item));
  if (sequence.kind == SequenceKind::kList) return StrCat("[", out, "]");
  if (sequence.kind == SequenceKind::kTuple) return StrCat("(", out, sequence.items.size() == 1 ? ",)" : ")");
  return StrCat(kSequenceTypes[static_cast<int>(sequence.kind)], "([", out, "])");
}

}  // namespace

std::string_view Value::reason() const {
  return is_undefined() && held_ != nullptr ? *Held<const std::string>() : std::string_view("the value is undefined");
}

std::optional<double> Value::number() const {
  if (is_float()) return std::bit_cast<double>(number_);
  return is_number() ? std::optional(static_cast<double>(number_)) : std::nullopt;
}

// Names of integers begin with this character; texts that begin with it get it once more.
constexpr char kNotText = '\x01';

std::string MakeKey(const std::string& text) { return text.starts_with(kNotText) ? kNotText + text : text; }

std::optional<std::string> MakeKey(const Value& value) {
  if (const std::string* text = value.text()) return MakeKey(*text);
  return value.integer() ? std::optional(StrCat(std::string(1, kNotText), *value.integer())) : std::nullopt;
}

Value ReadKey(const std::string& name) {
  if (!name.starts_with(kNotText)) return name;
  const auto number = ParseInt(std::string_view(name).substr(1));
  return number.ok() ? Value(*number) : Value(name.substr(1));
}

size_t Dict::FindIndex(std::string_view key) const {
  if (items.size() > kMostScanned) {
    const auto it = positions.find(ToAbsl(key));
    return it == positions.end() ? items.size() : it->second;
  }
  return std::ranges::find_if(items, [&](const auto& item) { return item.first == key; }) - items.begin();
}

const Value* Dict::Find(std::string_view key) const {
  const size_t index = FindIndex(key);
  return index < items.size() ? &items[index].second : nullptr;
}

const Value* Dict::FindItem(const Value& key) const {
  const std::string* text = key.text();
  if (text != nullptr && !text->starts_with(kNotText)) return Find(*text);
  const std::optional<std::string> name = MakeKey(key);
  return name ? Find(*name) : nullptr;
}

absl::Status Dict::Set(std::string_view key, Value value) {
  extent.weight += static_cast<int64_t>(key.size()) / kBytesPerWeight + 1;
  Include(value, &extent);
  const size_t index = FindIndex(key);
  if (index < items.size()) {
    items[index].second = std::move(value);
  } else {
    items.emplace_back(key, std::move(value));
  }
  for (size_t i = positions.size(); items.size() > kMostScanned && i < items.size(); ++i)
    positions.emplace(items[i].first, i);
  return CheckExtent(extent);
}

absl::StatusOr<Value> MakeSequence(SequenceKind kind, Values items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  sequence->extent.depth = 1;
  for (const Value& item : items) Include(item, &sequence->extent);
  sequence->items = std::move(items);
  RETURN_IF_ERROR(CheckExtent(sequence->extent));
  return Value(std::move(sequence));
}

Extent GetExtent(const Value& value) {
  if (value.sequence() != nullptr) return value.sequence()->extent;
  if (value.dict() != nullptr) return value.dict()->extent;
  if (value.object() != nullptr) return value.object()->extent();
  const size_t bytes = value.text() == nullptr ? 0 : value.text()->size();
  return {.depth = 0, .weight = static_cast<int64_t>(bytes) / kBytesPerWeight + 1};
}

std::string_view GetTypeName(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.text() != nullptr) return value.is_markup() ? "Markup" : "str";
  if (value.sequence() != nullptr) return kSequenceTypes[static_cast<int>(value.sequence()->kind)];
  return value.dict() != nullptr ? "dict" : value.object()->type_name();
}

bool IsTrue(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return *value.number() != 0;
  if (value.text() != nullptr) return !value.text()->empty();
  return GetLength(value).value_or(1) != 0;
}

bool IsHashable(const Value& value) {
  if (value.dict() != nullptr) return false;
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr) return true;
  if (sequence->kind != SequenceKind::kTuple) return sequence->kind != SequenceKind::kList;
  return std::ranges::all_of(sequence->items, IsHashable);
}

bool IsEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  if (a.dict() != nullptr && b.dict() != nullptr) return AreEqualDicts(*a.dict(), *b.dict());
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x != nullptr && y != nullptr)
    return x == y || (x->kind == y->kind && x->kind != SequenceKind::kGenerator &&
                      std::equal(x->items.begin(), x->items.end(), y->items.begin(), y->items.end(), IsEqual));
  if (a.object() != nullptr) return a.object() == b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

absl::StatusOr<std::partial_ordering> Compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() <=> *b.text();
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x != nullptr && y != nullptr && x->kind == y->kind && x->kind <= SequenceKind::kTuple) {
    const auto [i, j] = std::ranges::mismatch(x->items, y->items, IsEqual);
    if (i != x->items.end() && j != y->items.end()) return Compare(*i, *j);
    return x->items.size() <=> y->items.size();
  }
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined()) return Invalid(side->reason());
  }
  return Invalid("'", GetTypeName(a), "' and '", GetTypeName(b), "' cannot be compared");
}

absl::StatusOr<Values> ReadItems(const Value& value) {
  Values items;
  if (value.is_undefined()) return items;
  if (const std::string* text = value.text()) {
    for (size_t at = 0; at < text->size(); at += CharBytes((*text)[at]))
      items.emplace_back(std::string_view(*text).substr(at, CharBytes((*text)[at])));
    return items;
  }
  if (value.dict() != nullptr) {
    for (const auto& [key, item] : value.dict()->items) items.push_back(ReadKey(key));
    return items;
  }
  Sequence* sequence = value.sequence();
  if (sequence == nullptr) return Invalid("'", GetTypeName(value), "' object is not iterable");
  if (sequence->kind != SequenceKind::kGenerator) return sequence->items;
  items.assign(sequence->items.begin() + static_cast<int64_t>(sequence->consumed), sequence->items.end());
  sequence->consumed = sequence->items.size();
  RETURN_IF_ERROR(std::exchange(sequence->error, absl::OkStatus()));
  return items;
}

std::optional<int64_t> GetLength(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.text() != nullptr) return CountChars(*value.text());
  if (value.dict() != nullptr) return value.dict()->items.size();
  if (value.sequence() == nullptr || value.sequence()->kind == SequenceKind::kGenerator) return std::nullopt;
  return value.sequence()->items.size();
}

std::string Print(const Value& value) {
  if (value.text() != nullptr) return *value.text();
  return value.is_undefined() ? "" : PrintRepr(value);
}

std::string PrintRepr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return IsTrue(value) ? "True" : "False";
  if (value.is_int()) return StrCat(*value.integer());
  if (value.is_float()) return PrintFloat(*value.number());
  if (value.is_markup()) return StrCat("Markup(", QuoteText(*value.text()), ")");
  if (value.text() != nullptr) return QuoteText(*value.text());
  if (value.sequence() != nullptr) return PrintSequence(*value.sequence());
  return value.dict() != nullptr ? PrintDict(*value.dict()) : value.object()->Print();
}

size_t FindCharOffset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += CharBytes(text[at]);
  return at;
}

int64_t CountChars(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace onnxtrain::jinja
