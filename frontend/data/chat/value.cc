#include "frontend/data/chat/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr size_t kMostScanned = 8;  // items of a mapping that are searched one by one

constexpr std::string_view kSequenceTypes[] = {"list",        "tuple",      "range",    "dict_keys",
                                               "dict_values", "dict_items", "generator"};

constexpr int64_t kBytesPerWeight = 64;

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

// Returns the exact order of two numbers, of which one is an int or bool.
std::optional<int> CompareNumbers(const Value& a, const Value& b) {
  if (a.integer() && b.integer()) return *a.integer() < *b.integer() ? -1 : *a.integer() > *b.integer();
  const auto widen = [](const Value& v) -> long double { return v.is_float() ? *v.number() : *v.integer(); };
  const long double x = widen(a), y = widen(b);
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x < y ? -1 : x > y;
}

bool HaveEqualItems(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), IsEqual);
}

bool AreEqualDicts(const Dict& a, const Dict& b) {
  return a.items.size() == b.items.size() && std::ranges::all_of(a.items, [&](const auto& item) {
           const Value* other = b.Find(item.first);
           return other != nullptr && IsEqual(item.second, *other);
         });
}

void AppendEscape(char32_t c, std::string* out) {
  char digits[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  out->append(digits, std::snprintf(digits, sizeof digits, format, static_cast<unsigned>(c)));
}

std::string QuoteText(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t bytes = DecodeChar(text.substr(at), &c);
    const size_t known = std::string_view("\n\r\t\\").find(static_cast<char>(c));
    if (c < 0x80 && known != std::string_view::npos) {
      out.append({'\\', "nrt\\"[known]});
    } else if (c == static_cast<unsigned char>(quote)) {
      out.append({'\\', quote});
    } else if (IsPrintable(c)) {
      out += text.substr(at, bytes);
    } else {
      AppendEscape(c, &out);
    }
    at += bytes;
  }
  return out + quote;
}

std::string JoinReprs(const Values& items) {
  std::string out;
  for (const Value& item : items) StrAppend(&out, out.empty() ? "" : ", ", PrintRepr(item));
  return out;
}

std::string PrintDict(const Dict& dict) {
  std::string out;
  for (const auto& [key, value] : dict.items)
    StrAppend(&out, out.empty() ? "" : ", ", PrintRepr(key), ": ", PrintRepr(value));
  return StrCat("{", out, "}");
}

std::string PrintSequence(const Sequence& sequence) {
  const auto& [start, stop, step] = sequence.range;
  switch (sequence.kind) {
    case SequenceKind::kList:
      return StrCat("[", JoinReprs(sequence.items), "]");
    case SequenceKind::kTuple:
      return StrCat("(", JoinReprs(sequence.items), sequence.items.size() == 1 ? ",)" : ")");
    case SequenceKind::kRange:
      return StrCat("range(", start, ", ", stop, step == 1 ? "" : StrCat(", ", step), ")");
    case SequenceKind::kGenerator:
      return "<generator object>";
    default:
      return StrCat(kSequenceTypes[static_cast<int>(sequence.kind)], "([", JoinReprs(sequence.items), "])");
  }
}

// Returns the order of two lists or two tuples by their first different items.
absl::StatusOr<std::optional<int>> CompareItems(const Values& a, const Values& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!IsEqual(a[i], b[i])) return Compare(a[i], b[i]);
  }
  return a.size() < b.size() ? -1 : static_cast<int>(a.size() > b.size());
}

}  // namespace

Value::Value(const std::shared_ptr<const Dict>& dict) : Value(Kind::kDict, std::const_pointer_cast<Dict>(dict)) {}

const std::string& Value::reason() const {
  static const std::string* const kMissing = new std::string("the value is undefined");
  return is_undefined() && held_ != nullptr ? *Held<const std::string>() : *kMissing;
}

std::optional<double> Value::number() const {
  if (is_float()) return std::bit_cast<double>(number_);
  const auto whole = integer();
  return whole.has_value() ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<size_t> Dict::FindPosition(std::string_view key) const {
  if (items.size() > kMostScanned) {
    const auto it = positions.find(ToAbsl(key));
    return it == positions.end() ? std::nullopt : std::optional(it->second);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string* text = items[i].first.text();
    if (text != nullptr ? *text == key : MakeKey(items[i].first) == key) return i;
  }
  return std::nullopt;
}

const Value* Dict::FindText(std::string_view key) const {
  const auto position = FindPosition(key);
  return position.has_value() ? &items[*position].second : nullptr;
}

const Value* Dict::Find(const Value& key) const {
  return key.text() != nullptr ? FindText(*key.text()) : FindText(MakeKey(key));
}

absl::Status Dict::Set(const Value& key, Value value) {
  if (!IsHashable(key)) return Invalid("unhashable type: '", GetTypeName(key), "'");
  Include(key, &extent);
  Include(value, &extent);
  RETURN_IF_ERROR(CheckExtent(extent));
  const auto position = key.text() != nullptr ? FindPosition(*key.text()) : FindPosition(MakeKey(key));
  if (position.has_value()) return items[*position].second = std::move(value), absl::OkStatus();
  items.emplace_back(key, std::move(value));
  if (items.size() <= kMostScanned) return absl::OkStatus();
  for (size_t i = positions.size(); i < items.size(); ++i) positions.emplace(MakeKey(items[i].first), i);
  return absl::OkStatus();
}

std::string Object::Print() const { return StrCat("<", type_name(), ">"); }

std::optional<absl::StatusOr<Value>> Object::GetAttribute(std::string_view /*name*/) { return std::nullopt; }

absl::StatusOr<Value> Object::Call(Interpreter& /*interpreter*/, CallArguments&& /*arguments*/) {
  return Invalid("'", type_name(), "' object is not callable");
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

absl::StatusOr<Value> MakeGenerator(Values items, absl::Status error) {
  ASSIGN_OR_RETURN(Value made, MakeSequence(SequenceKind::kGenerator, std::move(items)));
  made.sequence()->error = std::move(error);
  return made;
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

std::string MakeKey(const Value& value) {
  if (value.text() != nullptr) return *value.text();
  if (value.integer()) return StrCat("\xff", *value.integer());
  if (value.is_float()) {
    const double number = *value.number();
    constexpr double kExact = 9e15;
    const bool whole = std::abs(number) < kExact && number == std::floor(number);
    return StrCat("\xff", whole ? StrCat(static_cast<int64_t>(number)) : PrintFloat(number));
  }
  if (value.object() != nullptr) return StrCat("\xff", "o", absl::Hex(value.object()));
  if (value.sequence() == nullptr) return StrCat("\xff", GetTypeName(value));
  std::string key = StrCat("\xff", GetTypeName(value), "(");
  for (const Value& item : value.sequence()->items) {
    const std::string part = MakeKey(item);
    StrAppend(&key, part.size(), ":", part);
  }
  return key;
}

bool IsEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  if (a.dict() != nullptr && b.dict() != nullptr) return AreEqualDicts(*a.dict(), *b.dict());
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x != nullptr && y != nullptr)
    return x == y || (x->kind == y->kind && x->kind != SequenceKind::kGenerator && HaveEqualItems(x->items, y->items));
  if (a.object() != nullptr) return a.object() == b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

absl::StatusOr<std::optional<int>> Compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->compare(*b.text());
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x != nullptr && y != nullptr && x->kind == y->kind && x->kind <= SequenceKind::kTuple)
    return CompareItems(x->items, y->items);
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
    for (const auto& [key, item] : value.dict()->items) items.push_back(key);
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

void AppendPrinted(const Value& value, std::string* out) {
  value.text() != nullptr ? * out += *value.text() : * out += Print(value);
}

std::string PrintRepr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return *value.integer() != 0 ? "True" : "False";
  if (value.is_int()) return StrCat(*value.integer());
  if (value.is_float()) return PrintFloat(*value.number());
  if (value.is_markup()) return StrCat("Markup(", QuoteText(*value.text()), ")");
  if (value.text() != nullptr) return QuoteText(*value.text());
  if (value.sequence() != nullptr) return PrintSequence(*value.sequence());
  return value.dict() != nullptr ? PrintDict(*value.dict()) : value.object()->Print();
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

size_t FindCharOffset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += CharBytes(text[at]);
  return at;
}

int64_t CountChars(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace onnxtrain::jinja
