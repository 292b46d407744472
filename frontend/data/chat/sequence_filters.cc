// Implements filters on lists and mappings, and filters that choose among values.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/text/case_mapping.h"

namespace onnxtrain::jinja {
namespace {

// A path of attributes, such as "function.name" or 0.
class AttributePath {
 public:
  AttributePath(Interpreter& run, const Value& path) : run_(run) {
    if (path.is_none()) return;
    if (path.text() == nullptr) {
      parts_.push_back(path);
      return;
    }
    std::string_view rest = *path.text();
    for (size_t end = 0; end != rest.npos; rest.remove_prefix(std::min(end + 1, rest.size()))) {
      end = rest.find('.');
      const std::string_view name = rest.substr(0, end);
      int64_t index = 0;
      const bool digits = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
      const bool is_index = digits && std::from_chars(name.data(), name.data() + name.size(), index).ec == std::errc();
      parts_.push_back(is_index ? Value(index) : Value(name));
    }
  }

  // Returns the value at the path. Undefined values on the way become `otherwise`, unless that is None.
  Value Get(const Value& value, const Value& otherwise = None()) const {
    Value current = value;
    for (const Value& part : parts_) {
      current = GetItem(run_, current, part);
      if (current.is_undefined() && !otherwise.is_none() && !run_.failed()) current = otherwise;
    }
    return current;
  }

 private:
  Interpreter& run_;
  Values parts_;
};

// Returns the keys by which values are sorted or compared: those at a path, in lower case unless the case matters.
Values GetKeys(Interpreter& run, const Values& items, const Value& attribute, bool case_sensitive) {
  const AttributePath path(run, attribute);
  Values keys;
  for (const Value& item : items) {
    const Value key = path.Get(item);
    const bool maps = !case_sensitive && key.text() != nullptr;
    keys.push_back(maps ? Value(MapCase(*key.text(), CaseMapping::kLower)) : key);
  }
  return keys;
}

// Returns the items in the stable order of their keys.
Value SortByKeys(Interpreter& run, const Values& items, const Values& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return !run.failed() && IsTrue(reverse ? Less(run, keys[b], keys[a]) : Less(run, keys[a], keys[b]));
  });
  Values out;
  for (const size_t i : order) out.push_back(items[i]);
  return run.MakeList(std::move(out));
}

Value MakeGenerator(Interpreter& run, Values items) {
  return run.Get(MakeSequence(SequenceKind::kGenerator, std::move(items)));
}

Value LengthFilter(const BuiltinCall& c) {
  const auto length = GetLength(c.self);
  return length ? Value(*length) : c.run.Fail("'", GetTypeName(c.self), "' object has no length");
}

Value DefaultFilter(const BuiltinCall& c) {
  const bool replace = c.self.is_undefined() || (c.IsTrue(1) && !IsTrue(c.self));
  return !replace ? c.self : c.Has(0) ? c.Get(0) : Value("");
}

Value JoinFilter(const BuiltinCall& c) {
  const std::string separator = c.Has(0) ? Print(c.Get(0)) : "";
  const AttributePath path(c.run, c.Get(1));
  const Values items = c.ReadSelf();
  std::string out;
  for (const Value& item : items) {
    if (&item != items.data()) out += separator;
    out += Print(path.Get(item));
    if (!c.run.CheckBytes(std::ssize(out))) return {};
  }
  return out;
}

Value FirstFilter(const BuiltinCall& c) {
  Sequence* sequence = c.self.sequence();
  if (sequence != nullptr && sequence->kind == SequenceKind::kGenerator && sequence->consumed < sequence->items.size())
    return sequence->items[sequence->consumed++];
  const Values items = c.ReadSelf();
  return items.empty() ? Value::MakeUndefined("No first item, sequence was empty.") : items.front();
}

Value LastFilter(const BuiltinCall& c) {
  if (!GetLength(c.self)) return c.run.Fail("'", GetTypeName(c.self), "' object is not reversible");
  const Values items = c.ReadSelf();
  return items.empty() ? Value::MakeUndefined("No last item, sequence was empty.") : items.back();
}

Value ReverseFilter(const BuiltinCall& c) {
  if (c.self.text() != nullptr) return GetSlice(c.run, c.self, None(), None(), int64_t{-1});
  Values items = c.ReadSelf();
  c.run.CountSteps(std::ssize(items));
  std::ranges::reverse(items);
  return GetLength(c.self) ? MakeGenerator(c.run, std::move(items)) : c.run.MakeList(std::move(items));
}

// Returns a generator of what `add` adds for each item, in which an error follows the items before it.
template <typename Add>
Value MapItems(const BuiltinCall& c, Add add) {
  const Values items = IsTrue(c.self) ? c.ReadSelf() : Values();
  if (!c.run.CountSteps(std::ssize(items))) return {};
  Values out;
  for (const Value& item : items) {
    add(item, &out);
    if (c.run.failed()) break;
  }
  absl::Status error = c.run.TakeError();
  Value made = MakeGenerator(c.run, std::move(out));
  if (made.sequence() != nullptr) made.sequence()->error = std::move(error);
  return made;
}

// Applies the filter or test whose name is an argument to a value, with the arguments after its name.
Value ApplyNamed(const BuiltinCall& c, const Builtin* (*find)(std::string_view), size_t name, const Value& value) {
  const Values& all = c.rest.positional;
  const Builtin* builtin = find(Print(all[name]));
  if (builtin == nullptr) return c.run.Fail("there is no filter or test '", Printable(Print(all[name])), "'");
  const CallArguments arguments = {Values(all.begin() + static_cast<int64_t>(name) + 1, all.end()), c.rest.named};
  return CallBuiltin(c.run, *builtin, value, arguments);
}

Value MapFilter(const BuiltinCall& c) {
  const auto find_named = [&](std::string_view name) {
    const auto it = std::ranges::find_if(c.rest.named, [&](const auto& argument) { return argument.first == name; });
    return it == c.rest.named.end() ? Value(None()) : it->second;
  };
  if (!c.rest.positional.empty())
    return MapItems(c, [&](const Value& item, Values* out) { out->push_back(ApplyNamed(c, FindFilter, 0, item)); });
  if (find_named("attribute").is_none()) return c.run.Fail("a filter is expected");
  const AttributePath path(c.run, find_named("attribute"));
  const Value otherwise = find_named("default");
  return MapItems(c, [&](const Value& item, Values* out) { out->push_back(path.Get(item, otherwise)); });
}

// Keeps items that pass a test, or that are true; tests an attribute of the items if `kByAttribute`.
template <bool kKeep, bool kByAttribute>
Value ChooseFilter(const BuiltinCall& c) {
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  const Values& all = c.rest.positional;
  if (all.size() < kTest) return c.run.Fail("an attribute is expected");
  const AttributePath path(c.run, kByAttribute ? all[0] : Value(None()));
  return MapItems(c, [&](const Value& item, Values* out) {
    const Value value = path.Get(item);
    const bool holds = IsTrue(all.size() > kTest ? ApplyNamed(c, FindTest, kTest, value) : value);
    if (holds == kKeep && !c.run.failed()) out->push_back(item);
  });
}

Value SortFilter(const BuiltinCall& c) {
  const Values items = c.ReadSelf();
  Values keys = GetKeys(c.run, items, c.Get(2), c.IsTrue(1));
  // Lists are compared by their first different items, so that equal keys need no order.
  for (Value& key : keys) key = c.run.MakeList({key});
  return SortByKeys(c.run, items, keys, c.IsTrue(0));
}

Value UniqueFilter(const BuiltinCall& c) {
  const Values items = c.ReadSelf();
  const Values keys = GetKeys(c.run, items, c.Get(1), c.IsTrue(0));
  Values seen, out;
  for (size_t i = 0; i < items.size() && c.run.CountSteps(std::ssize(seen)); ++i) {
    if (!IsHashable(keys[i])) return c.run.Fail("unhashable type: '", GetTypeName(keys[i]), "'");
    if (std::ranges::any_of(seen, [&](const Value& key) { return IsEqual(key, keys[i]); })) continue;
    seen.push_back(keys[i]);
    out.push_back(items[i]);
  }
  return MakeGenerator(c.run, std::move(out));
}

template <BinaryOperator kIsBetter>
Value ExtremeFilter(const BuiltinCall& c) {
  const Values items = c.ReadSelf();
  if (items.empty()) return Value::MakeUndefined("No aggregated item, sequence was empty.");
  const Values keys = GetKeys(c.run, items, c.Get(1), c.IsTrue(0));
  size_t best = 0;
  for (size_t i = 1; i < items.size() && !c.run.failed(); ++i) {
    if (IsTrue(kIsBetter(c.run, keys[i], keys[best]))) best = i;
  }
  return items[best];
}

Value SumFilter(const BuiltinCall& c) {
  const AttributePath path(c.run, c.Get(0));
  Value sum = c.Has(1) ? c.Get(1) : Value(int64_t{0});
  if (sum.text() != nullptr) return c.run.Fail("strings cannot be summed");
  for (const Value& item : c.ReadSelf()) {
    sum = Add(c.run, sum, path.Get(item));
    if (c.run.failed()) break;
  }
  return sum;
}

Values ReadPairs(const BuiltinCall& c) {
  Values out;
  if (c.self.dict() == nullptr && !c.self.is_undefined()) c.run.Fail("only a mapping has pairs of items");
  if (c.self.dict() == nullptr) return out;
  for (const auto& [key, value] : c.self.dict()->items) out.push_back(c.run.MakeTuple({ReadKey(key), value}));
  return out;
}

Value DictSortFilter(const BuiltinCall& c) {
  const std::string by = c.Has(1) ? Print(c.Get(1)) : "key";
  if (c.self.is_undefined()) return c.run.Fail(c.self.reason());
  if (by != "key" && by != "value") return c.run.Fail("it sorts by 'key' or by 'value'");
  const Values items = ReadPairs(c);
  return SortByKeys(c.run, items, GetKeys(c.run, items, int64_t{by == "value"}, c.IsTrue(0)), c.IsTrue(2));
}

constexpr Builtin kSequenceFilters[] = {
    {"length", "", LengthFilter},
    {"count", "", LengthFilter},
    {"default", "default_value? boolean?", DefaultFilter},
    {"d", "default_value? boolean?", DefaultFilter},
    {"join", "d? attribute?", JoinFilter},
    {"first", "", FirstFilter},
    {"last", "", LastFilter},
    {"list", "", [](const BuiltinCall& c) { return c.run.MakeList(c.ReadSelf()); }},
    {"reverse", "", ReverseFilter},
    {"map", "*", MapFilter},
    {"select", "*", ChooseFilter<true, false>},
    {"reject", "*", ChooseFilter<false, false>},
    {"selectattr", "*", ChooseFilter<true, true>},
    {"rejectattr", "*", ChooseFilter<false, true>},
    {"sort", "reverse? case_sensitive? attribute?", SortFilter},
    {"unique", "case_sensitive? attribute?", UniqueFilter},
    {"min", "case_sensitive? attribute?", ExtremeFilter<Less>},
    {"max", "case_sensitive? attribute?", ExtremeFilter<Greater>},
    {"sum", "attribute? start?", SumFilter},
    {"items", "", [](const BuiltinCall& c) { return MakeGenerator(c.run, ReadPairs(c)); }},
    {"dictsort", "case_sensitive? by? reverse?", DictSortFilter},
};

}  // namespace

std::span<const Builtin> SequenceFilters() { return kSequenceFilters; }

}  // namespace onnxtrain::jinja
