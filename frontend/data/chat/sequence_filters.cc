// Implements filters on lists and mappings, and filters that choose among values.
#include <algorithm>
#include <charconv>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/text/case_mapping.h"

namespace onnxtrain::jinja {
namespace {

// A path of attributes, such as "function.name" or 0.
class AttributePath {
 public:
  explicit AttributePath(const Value& path) {
    if (path.is_none()) return;
    if (path.text() == nullptr) {
      parts_.push_back(path);
      return;
    }
    std::string_view rest = *path.text();
    for (size_t end = 0; end != rest.npos; rest.remove_prefix(std::min(end + 1, rest.size()))) {
      end = rest.find('.');
      parts_.push_back(MakePart(rest.substr(0, end)));
    }
  }

  // Returns the value at the path. Undefined values on the way become `otherwise`, unless that is None.
  absl::StatusOr<Value> Get(const Value& value, const Value& otherwise = None()) const {
    Value current = value;
    for (const Value& part : parts_) {
      ASSIGN_OR_RETURN(current, GetItem(current, part));
      if (current.is_undefined() && !otherwise.is_none()) current = otherwise;
    }
    return current;
  }

 private:
  static Value MakePart(std::string_view name) {
    int64_t index = 0;
    const bool digits = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
    if (digits && std::from_chars(name.data(), name.data() + name.size(), index).ec == std::errc()) return index;
    return name;
  }

  Values parts_;
};

Value IgnoreCase(const Value& value) {
  return value.text() == nullptr ? value : Value(MapCase(*value.text(), CaseMapping::kLower));
}

// Returns the keys by which values are sorted or compared.
absl::StatusOr<Values> GetKeys(const Values& items, const Value& attribute, bool case_sensitive) {
  const AttributePath path(attribute);
  Values keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, path.Get(item));
    keys.push_back(case_sensitive ? std::move(key) : IgnoreCase(key));
  }
  return keys;
}

// Returns the stable order of the keys.
absl::StatusOr<std::vector<size_t>> SortKeys(Interpreter& run, const Values& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  absl::Status status;
  const auto less = [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    const auto below = reverse ? Less(run, keys[b], keys[a]) : Less(run, keys[a], keys[b]);
    if (!below.ok()) status = below.status();
    return below.ok() && IsTrue(*below);
  };
  std::ranges::stable_sort(order, less);
  RETURN_IF_ERROR(status);
  return order;
}

Values Permute(const Values& items, const std::vector<size_t>& order) {
  Values out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

absl::StatusOr<Value> LengthFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  if (const auto length = GetLength(self)) return Value(*length);
  return Invalid("'", GetTypeName(self), "' object has no length");
}

absl::StatusOr<Value> DefaultFilter(Interpreter& /*run*/, const Value& self, const Bound& a) {
  const bool replace = self.is_undefined() || (a.IsTrue(1) && !IsTrue(self));
  return !replace ? self : a.Has(0) ? a.Get(0) : Value("");
}

absl::StatusOr<Value> JoinFilter(Interpreter& run, const Value& self, const Bound& a) {
  const std::string separator = a.Has(0) ? Print(a.Get(0)) : "";
  const AttributePath path(a.Get(1));
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  std::string out;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value value, path.Get(item));
    if (&item != items.data()) out += separator;
    out += Print(value);
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(out)));
  }
  return Value(std::move(out));
}

absl::StatusOr<Value> FirstFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  Sequence* sequence = self.sequence();
  if (sequence != nullptr && sequence->kind == SequenceKind::kGenerator && sequence->consumed < sequence->items.size())
    return sequence->items[sequence->consumed++];
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  return items.empty() ? MakeUndefined("No first item, sequence was empty.") : items.front();
}

absl::StatusOr<Value> LastFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  if (!GetLength(self)) return Invalid("'", GetTypeName(self), "' object is not reversible");
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  return items.empty() ? MakeUndefined("No last item, sequence was empty.") : items.back();
}

absl::StatusOr<Value> ListFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  ASSIGN_OR_RETURN(Values items, ReadItems(self));
  return MakeList(std::move(items));
}

absl::StatusOr<Value> ReverseFilter(Interpreter& run, const Value& self, const Bound& /*a*/) {
  if (self.text() != nullptr) return GetSlice(self, None(), None(), int64_t{-1});
  ASSIGN_OR_RETURN(Values items, ReadItems(self));
  RETURN_IF_ERROR(run.CountSteps(std::ssize(items)));
  std::ranges::reverse(items);
  return GetLength(self) ? MakeGenerator(std::move(items)) : MakeList(std::move(items));
}

// Returns a generator of the results of a function for each item, in which an error follows the items before it.
template <typename Function>
absl::StatusOr<Value> MapItems(Interpreter& run, const Value& self, Function function) {
  if (!IsTrue(self)) return MakeGenerator({});
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  RETURN_IF_ERROR(run.CountSteps(std::ssize(items)));
  Values out;
  for (const Value& item : items) {
    const absl::Status status = function(item, &out);
    if (!status.ok()) return MakeGenerator(std::move(out), status);
  }
  return MakeGenerator(std::move(out));
}

// Returns the arguments after the first `count` ones.
CallArguments SkipArguments(const CallArguments& all, size_t count) {
  CallArguments rest;
  for (size_t i = count; i < all.positional.size(); ++i) rest.positional.push_back(all.positional[i]);
  rest.named = all.named;
  return rest;
}

const Value* FindNamed(const CallArguments& arguments, std::string_view name) {
  const auto it = std::ranges::find_if(arguments.named, [&](const auto& a) { return a.first == name; });
  return it == arguments.named.end() ? nullptr : &it->second;
}

absl::StatusOr<Value> MapFilter(Interpreter& run, const Value& self, const Bound& a) {
  const CallArguments& all = a.rest;
  const Value* attribute = FindNamed(all, "attribute");
  if (all.positional.empty() && attribute != nullptr) {
    const AttributePath path(*attribute);
    const Value* otherwise = FindNamed(all, "default");
    return MapItems(run, self, [&](const Value& item, Values* out) -> absl::Status {
      ASSIGN_OR_RETURN(Value value, path.Get(item, otherwise == nullptr ? None() : *otherwise));
      out->push_back(std::move(value));
      return absl::OkStatus();
    });
  }
  if (all.positional.empty()) return Invalid("a filter is expected");
  return MapItems(run, self, [&](const Value& item, Values* out) -> absl::Status {
    ASSIGN_OR_RETURN(Value value, run.ApplyFilter(Print(all.positional[0]), item, SkipArguments(all, 1)));
    out->push_back(std::move(value));
    return absl::OkStatus();
  });
}

// Keeps items that pass a test, or that are true; tests an attribute of the items if `kByAttribute`.
template <bool kKeep, bool kByAttribute>
absl::StatusOr<Value> ChooseFilter(Interpreter& run, const Value& self, const Bound& a) {
  const CallArguments& all = a.rest;
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  if (all.positional.size() < kTest) return Invalid("an attribute is expected");
  const AttributePath path(kByAttribute ? all.positional[0] : None());
  return MapItems(run, self, [&](const Value& item, Values* out) -> absl::Status {
    ASSIGN_OR_RETURN(const Value value, path.Get(item));
    bool holds = IsTrue(value);
    if (all.positional.size() > kTest) {
      ASSIGN_OR_RETURN(holds, run.ApplyTest(Print(all.positional[kTest]), value, SkipArguments(all, kTest + 1)));
    }
    if (holds == kKeep) out->push_back(item);
    return absl::OkStatus();
  });
}

absl::StatusOr<Value> SortFilter(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  ASSIGN_OR_RETURN(Values keys, GetKeys(items, a.Get(2), a.IsTrue(1)));
  for (Value& key : keys) {  // lists are compared by their first different items, so that equal keys need no order
    ASSIGN_OR_RETURN(key, MakeList({key}));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> order, SortKeys(run, keys, a.IsTrue(0)));
  return MakeList(Permute(items, order));
}

absl::StatusOr<Value> UniqueFilter(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  ASSIGN_OR_RETURN(const Values keys, GetKeys(items, a.Get(1), a.IsTrue(0)));
  RETURN_IF_ERROR(run.CountSteps(std::ssize(items)));
  Dict seen;
  Values out;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t before = seen.items.size();
    RETURN_IF_ERROR(seen.Set(keys[i], None()));
    if (seen.items.size() > before) out.push_back(items[i]);
  }
  return MakeGenerator(std::move(out));
}

template <BinaryOperator kIsBetter>
absl::StatusOr<Value> ExtremeFilter(Interpreter& run, const Value& self, const Bound& a) {
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  if (items.empty()) return MakeUndefined("No aggregated item, sequence was empty.");
  ASSIGN_OR_RETURN(const Values keys, GetKeys(items, a.Get(1), a.IsTrue(0)));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const Value better, kIsBetter(run, keys[i], keys[best]));
    if (IsTrue(better)) best = i;
  }
  return items[best];
}

absl::StatusOr<Value> SumFilter(Interpreter& run, const Value& self, const Bound& a) {
  const AttributePath path(a.Get(0));
  ASSIGN_OR_RETURN(const Values items, ReadItems(self));
  Value sum = a.Has(1) ? a.Get(1) : Value(int64_t{0});
  if (sum.text() != nullptr) return Invalid("strings cannot be summed");
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value value, path.Get(item));
    ASSIGN_OR_RETURN(sum, Add(run, sum, value));
  }
  return sum;
}

absl::StatusOr<Value> ItemsFilter(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  if (self.is_undefined()) return MakeGenerator({});
  if (self.dict() == nullptr) return Invalid("only a mapping has pairs of items");
  Values out;
  for (const auto& [key, value] : self.dict()->items) {
    ASSIGN_OR_RETURN(Value pair, MakeTuple({key, value}));
    out.push_back(std::move(pair));
  }
  return MakeGenerator(std::move(out));
}

absl::StatusOr<Value> DictSortFilter(Interpreter& run, const Value& self, const Bound& a) {
  if (self.dict() == nullptr) return Invalid("only a mapping has pairs of items");
  const std::string by = a.Has(1) ? Print(a.Get(1)) : "key";
  if (by != "key" && by != "value") return Invalid("it sorts by 'key' or by 'value'");
  ASSIGN_OR_RETURN(const Value generator, ItemsFilter(run, self, {}));
  ASSIGN_OR_RETURN(const Values items, ReadItems(generator));
  ASSIGN_OR_RETURN(const Values keys, GetKeys(items, int64_t{by == "value"}, a.IsTrue(0)));
  ASSIGN_OR_RETURN(const std::vector<size_t> order, SortKeys(run, keys, a.IsTrue(2)));
  return MakeList(Permute(items, order));
}

constexpr Builtin kSequenceFilters[] = {
    {"length", "", LengthFilter},
    {"count", "", LengthFilter},
    {"default", "default_value? boolean?", DefaultFilter},
    {"d", "default_value? boolean?", DefaultFilter},
    {"join", "d? attribute?", JoinFilter},
    {"first", "", FirstFilter},
    {"last", "", LastFilter},
    {"list", "", ListFilter},
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
    {"items", "", ItemsFilter},
    {"dictsort", "case_sensitive? by? reverse?", DictSortFilter},
};

}  // namespace

std::span<const Builtin> SequenceFilters() { return kSequenceFilters; }

}  // namespace onnxtrain::jinja
