#include "frontend/data/chat/operators.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

Value FailForTypes(Interpreter& run, std::string_view name, const Value& a, const Value& b) {
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined()) return run.Fail(side->reason());
  }
  return run.Fail("unsupported operand types for ", name, ": '", GetTypeName(a), "' and '", GetTypeName(b), "'");
}

bool AreWhole(const Value& a, const Value& b) { return a.integer() && b.integer(); }

// Computes with integers, by a function that returns whether they overflow, or with floats.
Value Compute(Interpreter& run, std::string_view name, const Value& a, const Value& b,
              bool (*whole)(int64_t, int64_t, int64_t*), double (*real)(double, double)) {
  int64_t result = 0;
  if (AreWhole(a, b)) {
    const bool overflows = whole(*a.integer(), *b.integer(), &result);
    return overflows ? run.Fail("an integer exceeds 64 bits") : Value(result);
  }
  if (!a.is_number() || !b.is_number()) return FailForTypes(run, name, a, b);
  return real(*a.number(), *b.number());
}

// Checks the operands of a division.
bool CanDivide(Interpreter& run, std::string_view name, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) {
    FailForTypes(run, name, a, b);
  } else if (*b.number() == 0) {
    run.Fail("division by zero");
  }
  return !run.failed();
}

double FloorRemainder(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

bool IsListOrTuple(const Value& value) {
  return value.sequence() != nullptr && value.sequence()->kind <= SequenceKind::kTuple;
}

// Repeats a text, list or tuple.
Value Repeat(Interpreter& run, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const Sequence* sequence = value.sequence();
  const auto size = static_cast<int64_t>(sequence == nullptr ? value.text()->size() : sequence->items.size());
  int64_t total = 0, weight = 0;
  if (__builtin_mul_overflow(size, count, &total) ||
      __builtin_mul_overflow(GetExtent(value).weight, std::max<int64_t>(count, 1), &weight))
    return run.Fail("an integer exceeds 64 bits");
  if (sequence != nullptr && weight > kMaxValueWeight) return run.Fail("a list or mapping becomes too large");
  if (!run.CountBytes(total)) return {};
  if (total == 0) count = 0;
  if (sequence == nullptr) {
    std::string text;
    for (; count > 0; --count) text += *value.text();
    return KeepMarkup(value, std::move(text));
  }
  Values items;
  for (; count > 0; --count) items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  return run.Get(MakeSequence(sequence->kind, std::move(items)));
}

// Returns whether the order of a and b has a sign that `accept` accepts; false for NaN.
Value CompareBy(Interpreter& run, const Value& a, const Value& b, bool (*accept)(std::partial_ordering)) {
  if (!run.CountSteps(std::min(GetExtent(a).weight, GetExtent(b).weight))) return {};
  const auto order = Compare(a, b);
  return run.Check(order.status()) ? Value(accept(*order)) : Value();
}

// The indices of a slice of a length, by Python's rules.
struct SliceRange {
  int64_t start = 0, stop = 0, step = 1;

  SliceRange(int64_t length, const Value& start_bound, const Value& stop_bound, int64_t given_step)
      : step(std::clamp<int64_t>(given_step, -length - 1, length + 1)) {
    const bool back = step < 0;
    const int64_t low = back ? -1 : 0, high = back ? length - 1 : length;
    const auto resolve = [&](const Value& bound, int64_t otherwise) {
      if (bound.is_none()) return otherwise;
      const int64_t index = std::clamp<int64_t>(*bound.integer(), -length - 1, length + 1);
      return std::clamp(index < 0 ? index + length : index, low, high);
    };
    start = resolve(start_bound, back ? high : low);
    stop = resolve(stop_bound, back ? low : high);
  }
  bool Contains(int64_t index) const { return step > 0 ? index < stop : index > stop; }
};

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
  for (int64_t i = range.start; range.Contains(i); i += range.step) out += chars[i];
  return out;
}

std::optional<Value> FindItem(const Value& value, const Value& key) {
  if (value.dict() != nullptr) {
    const Value* item = value.dict()->FindItem(key);
    return item == nullptr ? std::nullopt : std::optional<Value>(*item);
  }
  const bool indexed = value.text() != nullptr || (value.sequence() != nullptr && value.sequence()->is_indexed());
  if (!indexed || !key.integer()) return std::nullopt;
  const int64_t length = *GetLength(value);
  const int64_t index = *key.integer() < 0 ? *key.integer() + length : *key.integer();
  if (index < 0 || index >= length) return std::nullopt;
  if (value.sequence() != nullptr) return value.sequence()->items[index];
  const size_t begin = FindCharOffset(*value.text(), index);
  return KeepMarkup(value, value.text()->substr(begin, CharBytes((*value.text())[begin])));
}

// Returns a method or an attribute of an object. Python's hidden attributes are not visible.
std::optional<Value> FindAttribute(const Value& value, std::string_view name) {
  if (name.starts_with('_')) return std::nullopt;
  if (value.object() != nullptr) return value.object()->GetAttribute(name);
  const Builtin* method = FindMethod(value, name);
  return method == nullptr ? std::nullopt : std::optional<Value>(MakeFunction(*method, value));
}

Value MakeMissing(const Value& value, const Value& name) {
  return Value::MakeUndefined(
      StrCat("'", GetTypeName(value), "' object has no attribute or item ",
             Printable(PrintRepr(name.text() != nullptr || name.is_number() ? name : Value("?")))));
}

}  // namespace

Value Add(Interpreter& run, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    const bool markup = a.is_markup() || b.is_markup();
    const Value left = markup ? Escape(a) : a, right = markup ? Escape(b) : b;
    if (!run.CountBytes(std::ssize(*left.text()) + std::ssize(*right.text()))) return {};
    return KeepMarkup(left, *left.text() + *right.text());
  }
  if (IsListOrTuple(a) && IsListOrTuple(b) && a.sequence()->kind == b.sequence()->kind) {
    Values items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    run.CountSteps(std::ssize(items));
    return run.Get(MakeSequence(a.sequence()->kind, std::move(items)));
  }
  const auto add = [](int64_t x, int64_t y, int64_t* out) { return __builtin_add_overflow(x, y, out); };
  return Compute(run, "+", a, b, add, [](double x, double y) { return x + y; });
}

Value Subtract(Interpreter& run, const Value& a, const Value& b) {
  const auto subtract = [](int64_t x, int64_t y, int64_t* out) { return __builtin_sub_overflow(x, y, out); };
  return Compute(run, "-", a, b, subtract, [](double x, double y) { return x - y; });
}

Value Multiply(Interpreter& run, const Value& a, const Value& b) {
  if ((a.text() != nullptr || IsListOrTuple(a)) && b.integer()) return Repeat(run, a, *b.integer());
  if ((b.text() != nullptr || IsListOrTuple(b)) && a.integer()) return Repeat(run, b, *a.integer());
  const auto multiply = [](int64_t x, int64_t y, int64_t* out) { return __builtin_mul_overflow(x, y, out); };
  return Compute(run, "*", a, b, multiply, [](double x, double y) { return x * y; });
}

Value Divide(Interpreter& run, const Value& a, const Value& b) {
  return CanDivide(run, "/", a, b) ? Value(*a.number() / *b.number()) : Value();
}

Value FloorDivide(Interpreter& run, const Value& a, const Value& b) {
  if (!CanDivide(run, "//", a, b)) return {};
  if (AreWhole(a, b) && *b.integer() == -1) return Negate(run, a);
  const auto divide = [](int64_t x, int64_t y, int64_t* out) {
    *out = x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
    return false;
  };
  return Compute(run, "//", a, b, divide, [](double x, double y) {
    const double quotient = (x - FloorRemainder(x, y)) / y, floor = std::floor(quotient);
    return quotient - floor > 0.5 ? floor + 1 : floor;
  });
}

Value Modulo(Interpreter& run, const Value& a, const Value& b) {
  if (a.text() != nullptr) return FormatPercent(run, a, b);
  if (!CanDivide(run, "%", a, b)) return {};
  const auto modulo = [](int64_t x, int64_t y, int64_t* out) {
    *out = y == -1 ? 0 : x % y;
    if (*out != 0 && (*out < 0) != (y < 0)) *out += y;
    return false;
  };
  return Compute(run, "%", a, b, modulo, FloorRemainder);
}

Value Negate(Interpreter& run, const Value& a) {
  if (!a.is_number()) return FailForTypes(run, "-", a, a);
  return a.is_float() ? Value(-*a.number()) : Subtract(run, int64_t{0}, a);
}

Value Concat(Interpreter& run, const Value& a, const Value& b) {
  std::string text = Print(a);
  if (!run.CheckBytes(std::ssize(text))) return {};
  text += b.text() != nullptr ? *b.text() : Print(b);
  run.CountBytes(std::ssize(text));
  return text;
}

Value Equal(Interpreter& run, const Value& a, const Value& b) {
  return run.CountSteps(std::min(GetExtent(a).weight, GetExtent(b).weight)) && IsEqual(a, b);
}
Value NotEqual(Interpreter& run, const Value& a, const Value& b) { return !IsTrue(Equal(run, a, b)); }
Value Less(Interpreter& run, const Value& a, const Value& b) { return CompareBy(run, a, b, std::is_lt); }
Value LessEqual(Interpreter& run, const Value& a, const Value& b) { return CompareBy(run, a, b, std::is_lteq); }
Value Greater(Interpreter& run, const Value& a, const Value& b) { return CompareBy(run, a, b, std::is_gt); }
Value GreaterEqual(Interpreter& run, const Value& a, const Value& b) { return CompareBy(run, a, b, std::is_gteq); }

Value In(Interpreter& run, const Value& item, const Value& container) {
  if (!run.CountSteps(container.dict() != nullptr ? 1 : GetExtent(container).weight)) return {};
  if (const std::string* text = container.text()) {
    if (item.text() == nullptr) return run.Fail("'in <string>' requires a string, not '", GetTypeName(item), "'");
    return text->find(*item.text()) != text->npos;
  }
  if (container.dict() != nullptr) {
    if (!IsHashable(item)) return run.Fail("unhashable type: '", GetTypeName(item), "'");
    return container.dict()->FindItem(item) != nullptr;
  }
  const Sequence* sequence = container.sequence();
  const bool is_fixed = sequence != nullptr && sequence->kind != SequenceKind::kGenerator;
  const Values read = is_fixed ? Values() : run.Get(ReadItems(container));
  return std::ranges::any_of(is_fixed ? sequence->items : read, [&](const Value& v) { return IsEqual(v, item); });
}

Value NotIn(Interpreter& run, const Value& item, const Value& container) { return !IsTrue(In(run, item, container)); }

Value GetAttribute(Interpreter& run, const Value& value, std::string_view name) {
  if (value.is_undefined()) return run.Fail(value.reason());
  if (std::optional<Value> attribute = FindAttribute(value, name)) return *std::move(attribute);
  const Value* item = value.dict() == nullptr ? nullptr : value.dict()->Find(name);
  return item != nullptr ? *item : MakeMissing(value, name);
}

Value GetItem(Interpreter& run, const Value& value, const Value& key) {
  if (value.is_undefined()) return run.Fail(value.reason());
  if (std::optional<Value> item = FindItem(value, key)) return *std::move(item);
  std::optional<Value> attribute = key.text() != nullptr ? FindAttribute(value, *key.text()) : std::nullopt;
  return attribute ? *std::move(attribute) : MakeMissing(value, key);
}

Value GetSlice(Interpreter& run, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) return run.Fail(value.reason());
  const Sequence* sequence = value.sequence();
  if (value.text() == nullptr && (sequence == nullptr || !sequence->is_indexed()))
    return run.Fail("'", GetTypeName(value), "' object cannot be sliced");
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->integer()) return run.Fail("slice indices must be integers or None");
  }
  if (step.integer() == 0) return run.Fail("slice step cannot be zero");
  const int64_t length = *GetLength(value);
  const SliceRange range(length, start, stop, step.integer().value_or(1));
  if (value.text() != nullptr) return KeepMarkup(value, SliceText(*value.text(), length, range));
  Values items;
  for (int64_t i = range.start; range.Contains(i); i += range.step) items.push_back(sequence->items[i]);
  Value slice = run.Get(MakeSequence(sequence->kind, std::move(items)));
  const auto at = [&](int64_t i) { return sequence->range[0] + i * sequence->range[2]; };
  if (slice.sequence() != nullptr)
    slice.sequence()->range = {at(range.start), at(range.stop), sequence->range[2] * range.step};
  return slice;
}

Value KeepMarkup(const Value& self, std::string text) {
  return self.is_markup() ? Value::MakeMarkup(std::move(text)) : Value(std::move(text));
}

Value Escape(const Value& value) {
  if (value.is_markup()) return value;
  constexpr std::string_view kSpecial = "&<>'\"", kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string out;
  for (const char c : Print(value)) {
    const size_t special = kSpecial.find(c);
    out += special == kSpecial.npos ? std::string_view(&c, 1) : kEscapes[special];
  }
  return Value::MakeMarkup(std::move(out));
}

}  // namespace onnxtrain::jinja
