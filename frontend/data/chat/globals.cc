// Implements the global functions, and the methods of lists and mappings.
#include <algorithm>
#include <ctime>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox allows

Value Share(std::shared_ptr<Dict> dict) { return std::shared_ptr<const Dict>(std::move(dict)); }

absl::StatusOr<Value> RangeFunction(Interpreter& run, const Value& /*self*/, const Bound& a) {
  ASSIGN_OR_RETURN(const int64_t first, a.GetInteger(0));
  ASSIGN_OR_RETURN(const int64_t second, a.GetInteger(1));
  ASSIGN_OR_RETURN(const int64_t step, a.GetInteger(2, 1));
  if (step == 0) return Invalid("the step must not be zero");
  const int64_t start = a.Has(1) ? first : 0, stop = a.Has(1) ? second : first;
  const auto distance = static_cast<long double>(stop) - start;
  if (distance / step > kMaxRange) return Invalid("ranges of more than ", kMaxRange, " numbers are refused");
  Values items;
  const int64_t count = distance / step <= 0 ? 0 : static_cast<int64_t>((distance + step - (step > 0 ? 1 : -1)) / step);
  for (int64_t i = 0; i < count; ++i) items.emplace_back(start + i * step);
  RETURN_IF_ERROR(run.CountSteps(count));
  ASSIGN_OR_RETURN(Value range, MakeSequence(SequenceKind::kRange, std::move(items)));
  range.sequence()->range = {start, stop, step};
  return range;
}

// Collects the pairs of a mapping, a list of pairs, and keywords.
absl::StatusOr<std::shared_ptr<Dict>> CollectPairs(const Bound& a) {
  auto dict = std::make_shared<Dict>();
  if (a.Has(0) && a.Get(0).dict() != nullptr) {
    *dict = *a.Get(0).dict();
  } else if (a.Has(0)) {
    ASSIGN_OR_RETURN(const Values pairs, ReadItems(a.Get(0)));
    for (const Value& pair : pairs) {
      ASSIGN_OR_RETURN(const Values both, ReadItems(pair));
      if (both.size() != 2) return Invalid("a pair of a key and a value is expected");
      RETURN_IF_ERROR(dict->Set(both[0], both[1]));
    }
  }
  for (const auto& [name, value] : a.rest.named) RETURN_IF_ERROR(dict->Set(name, value));
  return dict;
}

absl::Status CheckOnePositional(const Bound& a) {
  return a.rest.positional.empty() ? absl::OkStatus() : Invalid("at most one positional argument is expected");
}

absl::StatusOr<Value> DictFunction(Interpreter& /*run*/, const Value& /*self*/, const Bound& a) {
  RETURN_IF_ERROR(CheckOnePositional(a));
  ASSIGN_OR_RETURN(std::shared_ptr<Dict> dict, CollectPairs(a));
  return Share(std::move(dict));
}

absl::StatusOr<Value> NamespaceFunction(Interpreter& run, const Value& /*self*/, const Bound& a) {
  RETURN_IF_ERROR(CheckOnePositional(a));
  ASSIGN_OR_RETURN(const std::shared_ptr<Dict> dict, CollectPairs(a));
  const auto attributes = run.Make<Namespace>();
  for (const auto& [key, value] : dict->items) {
    if (key.text() != nullptr) RETURN_IF_ERROR(attributes->Set(*key.text(), value));
  }
  return Value(std::shared_ptr<Object>(attributes));
}

absl::StatusOr<Value> RaiseFunction(Interpreter& /*run*/, const Value& /*self*/, const Bound& a) {
  return absl::FailedPreconditionError(ToAbsl(PrintableLine(Print(a.Get(0)))));
}

absl::StatusOr<Value> TimeFunction(Interpreter& run, const Value& /*self*/, const Bound& a) {
  ASSIGN_OR_RETURN(const std::string format, a.GetText(0));
  char text[4096];
  if (format.empty()) return Value("");
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &run.now());
  if (FindInvalidUtf8({text, size}) != std::string_view::npos) return Invalid("the time has no text");
  return Value(std::string_view(text, size));
}

absl::StatusOr<Value> GetMethod(Interpreter& /*run*/, const Value& self, const Bound& a) {
  const Value key = a.Get(0);
  if (!IsHashable(key)) return Invalid("unhashable type: '", GetTypeName(key), "'");
  const Value* item = self.dict()->Find(key);
  return item == nullptr ? a.Get(1) : *item;
}

template <SequenceKind kKind>
absl::StatusOr<Value> ViewMethod(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  Values out;
  for (const auto& [key, value] : self.dict()->items) {
    if constexpr (kKind == SequenceKind::kItems) {
      ASSIGN_OR_RETURN(Value pair, MakeTuple({key, value}));
      out.push_back(std::move(pair));
    } else {
      out.push_back(kKind == SequenceKind::kKeys ? key : value);
    }
  }
  return MakeSequence(kKind, std::move(out));
}

absl::StatusOr<Value> IndexOfMethod(Interpreter& run, const Value& self, const Bound& a) {
  const Values& items = self.sequence()->items;
  RETURN_IF_ERROR(run.CountSteps(GetExtent(self).weight));
  const auto it = std::ranges::find_if(items, [&](const Value& item) { return IsEqual(item, a.Get(0)); });
  if (it == items.end()) return Invalid("the value is not in the list");
  return Value(int64_t{it - items.begin()});
}

absl::StatusOr<Value> CountOfMethod(Interpreter& run, const Value& self, const Bound& a) {
  const Values& items = self.sequence()->items;
  RETURN_IF_ERROR(run.CountSteps(GetExtent(self).weight));
  return Value(int64_t{std::ranges::count_if(items, [&](const Value& item) { return IsEqual(item, a.Get(0)); })});
}

constexpr Builtin kListMethods[] = {
    {"index", "value", IndexOfMethod},
    {"count", "value", CountOfMethod},
};

constexpr Builtin kDictMethods[] = {
    {"get", "key default?", GetMethod},
    {"items", "", ViewMethod<SequenceKind::kItems>},
    {"keys", "", ViewMethod<SequenceKind::kKeys>},
    {"values", "", ViewMethod<SequenceKind::kValues>},
};

constexpr Builtin kGlobals[] = {
    {"range", "start stop? step?", RangeFunction},  {"dict", "mapping? *", DictFunction},
    {"namespace", "mapping? *", NamespaceFunction}, {"raise_exception", "message", RaiseFunction},
    {"strftime_now", "format", TimeFunction},
};

}  // namespace

std::span<const Builtin> ListMethods() { return kListMethods; }
std::span<const Builtin> DictMethods() { return kDictMethods; }
std::span<const Builtin> GlobalFunctions() { return kGlobals; }

}  // namespace onnxtrain::jinja
