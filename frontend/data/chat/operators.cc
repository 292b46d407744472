#include "frontend/data/chat/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

absl::Status Unsupported(std::string_view name, const Value& a, const Value& b) {
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined()) return Invalid(side->reason());
  }
  return Invalid("unsupported operand types for ", name, ": '", GetTypeName(a), "' and '", GetTypeName(b), "'");
}

bool AreWhole(const Value& a, const Value& b) { return a.integer() && b.integer(); }
bool AreNumbers(const Value& a, const Value& b) { return a.is_number() && b.is_number(); }

absl::Status TooLarge() { return Invalid("an integer exceeds 64 bits"); }

bool IsPlain(const Value& value, SequenceKind kind) {
  return value.sequence() != nullptr && value.sequence()->kind == kind;
}

absl::StatusOr<Value> JoinTexts(Interpreter& run, const Value& a, const Value& b) {
  const bool markup = a.is_markup() || b.is_markup();
  const Value left = markup ? Escape(a) : a, right = markup ? Escape(b) : b;
  RETURN_IF_ERROR(run.CountBytes(static_cast<int64_t>(left.text()->size() + right.text()->size())));
  std::string joined = *left.text() + *right.text();
  return markup ? MakeMarkup(std::move(joined)) : Value(std::move(joined));
}

// Repeats a text, list or tuple; the other operand is the count.
absl::StatusOr<Value> Repeat(Interpreter& run, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const auto size =
      static_cast<int64_t>(value.text() != nullptr ? value.text()->size() : value.sequence()->items.size());
  int64_t total = 0;
  if (__builtin_mul_overflow(size, count, &total)) return TooLarge();
  RETURN_IF_ERROR(run.CountBytes(total));
  if (total == 0) count = 0;
  if (value.text() != nullptr) {
    std::string text;
    for (; count > 0; --count) text += *value.text();
    return value.is_markup() ? MakeMarkup(std::move(text)) : Value(std::move(text));
  }
  if (GetExtent(value).weight * std::max<int64_t>(count, 1) > kMaxValueWeight) return TooLarge();
  Values items;
  for (; count > 0; --count) items.insert(items.end(), value.sequence()->items.begin(), value.sequence()->items.end());
  return MakeSequence(value.sequence()->kind, std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.text() != nullptr || IsPlain(value, SequenceKind::kList) || IsPlain(value, SequenceKind::kTuple);
}

// Returns whether the order of a and b has a sign that `accept` accepts; false for NaN.
template <typename Accept>
absl::StatusOr<Value> CompareBy(Interpreter& run, const Value& a, const Value& b, Accept accept) {
  RETURN_IF_ERROR(run.CountSteps(std::min(GetExtent(a).weight, GetExtent(b).weight)));
  ASSIGN_OR_RETURN(const std::optional<int> order, Compare(a, b));
  return Value(order.has_value() && accept(*order));
}

// The indices of a slice of a length, by Python's rules.
struct SliceRange {
  int64_t start = 0, stop = 0, step = 1;
};

absl::StatusOr<SliceRange> ResolveSlice(int64_t length, const Value& start, const Value& stop, const Value& step) {
  SliceRange range;
  range.step = step.integer().value_or(1);
  if (range.step == 0) return Invalid("slice step cannot be zero");
  range.step = std::clamp<int64_t>(range.step, -length - 1, length + 1);
  const bool back = range.step < 0;
  const int64_t low = back ? -1 : 0, high = back ? length - 1 : length;
  const auto resolve = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    const int64_t index = std::clamp<int64_t>(*bound.integer(), -length - 1, length + 1);
    return std::clamp(index < 0 ? index + length : index, low, high);
  };
  range.start = resolve(start, back ? high : low);
  range.stop = resolve(stop, back ? low : high);
  return range;
}

std::string SliceText(std::string_view text, int64_t length, const SliceRange& range) {
  if (range.step == 1) {
    if (range.start >= range.stop) return "";
    const size_t begin = FindCharOffset(text, range.start);
    return std::string(text.substr(begin, FindCharOffset(text.substr(begin), range.stop - range.start)));
  }
  std::vector<std::string_view> chars;
  chars.reserve(length);
  for (size_t at = 0; at < text.size(); at += chars.back().size())
    chars.push_back(text.substr(at, CharBytes(text[at])));
  std::string out;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) out += chars[i];
  return out;
}

absl::StatusOr<Value> MakeRangeSlice(const Sequence& whole, const SliceRange& range, Values items) {
  ASSIGN_OR_RETURN(Value slice, MakeSequence(SequenceKind::kRange, std::move(items)));
  const auto at = [&](int64_t i) { return whole.range[0] + i * whole.range[2]; };
  slice.sequence()->range = {at(range.start), at(range.stop), whole.range[2] * range.step};
  return slice;
}

std::optional<Value> FindItem(const Value& value, const Value& key) {
  if (value.dict() != nullptr) {
    const Value* item = IsHashable(key) ? value.dict()->Find(key) : nullptr;
    return item == nullptr ? std::nullopt : std::optional<Value>(*item);
  }
  const bool indexed = value.text() != nullptr || (value.sequence() != nullptr && value.sequence()->is_indexed());
  if (!indexed || !key.integer()) return std::nullopt;
  const int64_t length = *GetLength(value);
  const int64_t index = *key.integer() < 0 ? *key.integer() + length : *key.integer();
  if (index < 0 || index >= length) return std::nullopt;
  if (value.sequence() != nullptr) return value.sequence()->items[index];
  const size_t begin = FindCharOffset(*value.text(), index);
  std::string text = value.text()->substr(begin, CharBytes((*value.text())[begin]));
  return value.is_markup() ? MakeMarkup(std::move(text)) : Value(std::move(text));
}

std::span<const Builtin> GetMethods(const Value& value) {
  if (value.text() != nullptr) return TextMethods();
  if (value.dict() != nullptr) return DictMethods();
  return value.sequence() != nullptr && value.sequence()->kind <= SequenceKind::kRange ? ListMethods()
                                                                                       : std::span<const Builtin>();
}

// Returns a method or an attribute of an object. Python's hidden attributes are not visible.
absl::StatusOr<std::optional<Value>> FindAttribute(const Value& value, std::string_view name) {
  if (name.starts_with('_')) return std::nullopt;
  if (value.object() != nullptr) {
    auto attribute = value.object()->GetAttribute(name);
    if (!attribute) return std::nullopt;
    RETURN_IF_ERROR(attribute->status());
    return **std::move(attribute);
  }
  const Builtin* method = FindBuiltin(GetMethods(value), name);
  return method == nullptr ? std::nullopt : std::optional<Value>(MakeFunction(*method, value));
}

Value MakeMissing(const Value& value, const Value& name) {
  return MakeUndefined(StrCat("'", GetTypeName(value), "' object has no attribute or item ",
                              Printable(PrintRepr(name.text() != nullptr || name.is_number() ? name : Value("?")))));
}

}  // namespace

absl::StatusOr<Value> Add(Interpreter& run, const Value& a, const Value& b) {
  if (AreWhole(a, b)) {
    int64_t sum = 0;
    return __builtin_add_overflow(*a.integer(), *b.integer(), &sum) ? absl::StatusOr<Value>(TooLarge()) : Value(sum);
  }
  if (AreNumbers(a, b)) return Value(*a.number() + *b.number());
  if (a.text() != nullptr && b.text() != nullptr) return JoinTexts(run, a, b);
  for (const SequenceKind kind : {SequenceKind::kList, SequenceKind::kTuple}) {
    if (!IsPlain(a, kind) || !IsPlain(b, kind)) continue;
    Values items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    RETURN_IF_ERROR(run.CountSteps(static_cast<int64_t>(items.size())));
    return MakeSequence(kind, std::move(items));
  }
  return Unsupported("+", a, b);
}

absl::StatusOr<Value> Subtract(Interpreter& /*run*/, const Value& a, const Value& b) {
  if (AreWhole(a, b)) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(*a.integer(), *b.integer(), &difference)) return TooLarge();
    return Value(difference);
  }
  if (AreNumbers(a, b)) return Value(*a.number() - *b.number());
  return Unsupported("-", a, b);
}

absl::StatusOr<Value> Multiply(Interpreter& run, const Value& a, const Value& b) {
  if (AreWhole(a, b)) {
    int64_t product = 0;
    if (__builtin_mul_overflow(*a.integer(), *b.integer(), &product)) return TooLarge();
    return Value(product);
  }
  if (AreNumbers(a, b)) return Value(*a.number() * *b.number());
  if (IsRepeatable(a) && b.integer()) return Repeat(run, a, *b.integer());
  if (IsRepeatable(b) && a.integer()) return Repeat(run, b, *a.integer());
  return Unsupported("*", a, b);
}

absl::StatusOr<Value> Divide(Interpreter& /*run*/, const Value& a, const Value& b) {
  if (!AreNumbers(a, b)) return Unsupported("/", a, b);
  if (*b.number() == 0) return Invalid("division by zero");
  return Value(*a.number() / *b.number());
}

absl::StatusOr<Value> FloorDivide(Interpreter& run, const Value& a, const Value& b) {
  if (!AreNumbers(a, b)) return Unsupported("//", a, b);
  if (*b.number() == 0) return Invalid("integer division or modulo by zero");
  if (!AreWhole(a, b)) {
    ASSIGN_OR_RETURN(const Value remainder, Modulo(run, a, b));
    const double quotient = (*a.number() - *remainder.number()) / *b.number();
    const double floor = std::floor(quotient);
    return Value(quotient - floor > 0.5 ? floor + 1 : floor);
  }
  const int64_t x = *a.integer(), y = *b.integer();
  if (y == -1) return Negate(Value(x));
  const int64_t quotient = x / y;
  return Value(x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient);
}

absl::StatusOr<Value> Modulo(Interpreter& run, const Value& a, const Value& b) {
  if (a.text() != nullptr) {
    ASSIGN_OR_RETURN(std::string text, FormatPercent(run, *a.text(), b));
    return a.is_markup() ? MakeMarkup(std::move(text)) : Value(std::move(text));
  }
  if (!AreNumbers(a, b)) return Unsupported("%", a, b);
  if (*b.number() == 0) return Invalid("integer division or modulo by zero");
  if (!AreWhole(a, b)) {
    const double divisor = *b.number(), remainder = std::fmod(*a.number(), divisor);
    if (remainder == 0) return Value(std::copysign(0.0, divisor));
    return Value((remainder < 0) != (divisor < 0) ? remainder + divisor : remainder);
  }
  if (*b.integer() == -1) return Value(int64_t{0});
  const int64_t remainder = *a.integer() % *b.integer();
  return Value(remainder != 0 && (remainder < 0) != (*b.integer() < 0) ? remainder + *b.integer() : remainder);
}

absl::StatusOr<Value> Equal(Interpreter& run, const Value& a, const Value& b) {
  RETURN_IF_ERROR(run.CountSteps(std::min(GetExtent(a).weight, GetExtent(b).weight)));
  return Value(IsEqual(a, b));
}

absl::StatusOr<Value> NotEqual(Interpreter& run, const Value& a, const Value& b) {
  ASSIGN_OR_RETURN(const Value equal, Equal(run, a, b));
  return Not(equal);
}

absl::StatusOr<Value> Less(Interpreter& run, const Value& a, const Value& b) {
  return CompareBy(run, a, b, [](int order) { return order < 0; });
}
absl::StatusOr<Value> LessEqual(Interpreter& run, const Value& a, const Value& b) {
  return CompareBy(run, a, b, [](int order) { return order <= 0; });
}
absl::StatusOr<Value> Greater(Interpreter& run, const Value& a, const Value& b) {
  return CompareBy(run, a, b, [](int order) { return order > 0; });
}
absl::StatusOr<Value> GreaterEqual(Interpreter& run, const Value& a, const Value& b) {
  return CompareBy(run, a, b, [](int order) { return order >= 0; });
}

absl::StatusOr<Value> In(Interpreter& run, const Value& item, const Value& container) {
  RETURN_IF_ERROR(run.CountSteps(container.dict() != nullptr ? 1 : GetExtent(container).weight));
  if (const std::string* text = container.text()) {
    if (item.text() == nullptr) return Invalid("'in <string>' requires a string, not '", GetTypeName(item), "'");
    return Value(text->find(*item.text()) != text->npos);
  }
  if (container.dict() != nullptr) {
    if (!IsHashable(item)) return Invalid("unhashable type: '", GetTypeName(item), "'");
    return Value(container.dict()->Find(item) != nullptr);
  }
  if (container.sequence() != nullptr && container.sequence()->kind != SequenceKind::kGenerator)
    return Value(std::ranges::any_of(container.sequence()->items, [&](const Value& v) { return IsEqual(v, item); }));
  ASSIGN_OR_RETURN(const Values items, ReadItems(container));
  return Value(std::ranges::any_of(items, [&](const Value& v) { return IsEqual(v, item); }));
}

absl::StatusOr<Value> NotIn(Interpreter& run, const Value& item, const Value& container) {
  ASSIGN_OR_RETURN(const Value in, In(run, item, container));
  return Not(in);
}

absl::StatusOr<Value> Negate(const Value& a) {
  if (const auto whole = a.integer()) {
    return *whole == std::numeric_limits<int64_t>::min() ? absl::StatusOr<Value>(TooLarge()) : Value(-*whole);
  }
  if (a.is_float()) return Value(-*a.number());
  return Unsupported("-", a, a);
}

absl::StatusOr<Value> KeepSign(const Value& a) {
  if (const auto whole = a.integer()) return Value(*whole);
  return a.is_float() ? absl::StatusOr<Value>(a) : Unsupported("+", a, a);
}

absl::StatusOr<Value> Not(const Value& a) { return Value(!IsTrue(a)); }

absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) return Invalid(value.reason());
  ASSIGN_OR_RETURN(std::optional<Value> attribute, FindAttribute(value, name));
  if (attribute) return *std::move(attribute);
  const Value* item = value.dict() == nullptr ? nullptr : value.dict()->FindText(name);
  return item != nullptr ? *item : MakeMissing(value, name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return Invalid(value.reason());
  if (std::optional<Value> item = FindItem(value, key)) return *std::move(item);
  if (key.text() != nullptr) {
    ASSIGN_OR_RETURN(std::optional<Value> attribute, FindAttribute(value, *key.text()));
    if (attribute) return *std::move(attribute);
  }
  return MakeMissing(value, key);
}

absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) return Invalid(value.reason());
  const Sequence* sequence = value.sequence();
  if (value.text() == nullptr && (sequence == nullptr || !sequence->is_indexed()))
    return Invalid("'", GetTypeName(value), "' object cannot be sliced");
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->integer()) return Invalid("slice indices must be integers or None");
  }
  const int64_t length = *GetLength(value);
  ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(length, start, stop, step));
  if (value.text() != nullptr) {
    std::string text = SliceText(*value.text(), length, range);
    return value.is_markup() ? MakeMarkup(std::move(text)) : Value(std::move(text));
  }
  Values items;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step)
    items.push_back(sequence->items[i]);
  if (sequence->kind == SequenceKind::kRange) return MakeRangeSlice(*sequence, range, std::move(items));
  return MakeSequence(sequence->kind, std::move(items));
}

Value Escape(const Value& value) {
  if (value.is_markup()) return value;
  constexpr std::pair<char, std::string_view> kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
  std::string out;
  for (const char c : Print(value)) {
    const auto* row = std::ranges::find(kEscapes, c, &std::pair<char, std::string_view>::first);
    if (row == std::end(kEscapes)) {
      out += c;
    } else {
      out += row->second;
    }
  }
  return MakeMarkup(std::move(out));
}

}  // namespace onnxtrain::jinja
