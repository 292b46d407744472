#include "frontend/data/chat/builtins.h"

#include <algorithm>
#include <ctime>

#include "frontend/data/chat/operators.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox allows

// Removes the first of a list of parameters such as "old new count? *".
std::string_view TakeParameter(std::string_view* parameters) {
  const std::string_view first = parameters->substr(0, parameters->find(' '));
  parameters->remove_prefix(std::min(first.size() + 1, parameters->size()));
  return first;
}

// Binds the arguments to the parameters in their order, and those that are left to "*". Returns what is wrong, or "".
std::string Bind(const Builtin& builtin, const CallArguments& arguments, BuiltinCall* call) {
  const auto& [positional, named] = arguments;
  call->rest.named = named;
  size_t parameter = 0;
  std::string_view parameters = builtin.parameters;
  std::string_view name = TakeParameter(&parameters);
  for (; !name.empty() && name != "*"; name = TakeParameter(&parameters), ++parameter) {
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    const auto has_name = [&](const auto& argument) { return argument.first == name; };
    const auto it = std::ranges::find_if(named, has_name);
    const bool is_named = it != named.end(), is_positional = parameter < positional.size();
    if (is_named && is_positional) return StrCat(builtin.name, " got two values for '", name, "'");
    if (!is_named && !is_positional && !optional) return StrCat(builtin.name, " needs '", name, "'");
    if (!is_named && !is_positional) continue;
    call->values.resize(parameter + 1);
    call->values[parameter] = is_named ? &it->second : &positional[parameter];
    if (is_named) std::erase_if(call->rest.named, has_name);
  }
  if (parameter < positional.size())
    call->rest.positional.assign(positional.begin() + static_cast<int64_t>(parameter), positional.end());
  if (name == "*") return "";
  if (!call->rest.positional.empty()) return StrCat(builtin.name, " takes at most ", parameter, " argument(s)");
  if (call->rest.named.empty()) return "";
  return StrCat(builtin.name, " has no parameter '", Printable(call->rest.named[0].first), "'");
}

// Counts the work on a value of any size.
void CountSize(Interpreter& run, const Value& value) {
  if (value.sequence() != nullptr) run.CountSteps(std::ssize(value.sequence()->items));
  if (value.text() != nullptr) run.CountBytes(std::ssize(*value.text()));
}

// A row of a table, bound to a value as its method.
class Function : public Object {
 public:
  Function(const Builtin& builtin, Value self) : builtin_(builtin), self_(std::move(self)) {}
  std::string_view type_name() const override { return "function"; }
  Extent extent() const override {
    const Extent self = GetExtent(self_);
    return {.depth = self.depth + 1, .weight = self.weight + 1};
  }
  Value Call(Interpreter& run, CallArguments arguments) override {
    return CallBuiltin(run, builtin_, self_, arguments);
  }

 private:
  const Builtin& builtin_;
  Value self_;
};

// Tests, which follow `is`

template <BinaryOperator kCompare>
Value CompareTest(const BuiltinCall& c) {
  return kCompare(c.run, c.self, c.Get(0));
}

Value IsIterable(const BuiltinCall& c) {
  const bool is_loop = c.self.object() != nullptr && c.self.object()->type_name() == "LoopContext";
  return GetLength(c.self).has_value() || c.self.sequence() != nullptr || is_loop;
}

Value HasIndices(const BuiltinCall& c) {
  return c.self.sequence() != nullptr ? c.self.sequence()->is_indexed() : GetLength(c.self).has_value();
}

Value LeavesRemainder(const BuiltinCall& c, const Value& divisor, int64_t remainder) {
  if (c.self.text() != nullptr) return c.run.Fail("a number is expected");
  return IsEqual(Modulo(c.run, c.self, divisor), remainder);
}

Value IsSame(const BuiltinCall& c) {
  const Value& other = c.Get(0);
  if (c.self.sequence() != nullptr || c.self.dict() != nullptr)
    return c.self.sequence() == other.sequence() && c.self.dict() == other.dict();
  return GetTypeName(c.self) == GetTypeName(other) && IsEqual(c.self, other);
}

constexpr Builtin kTests[] = {
    {"defined", "", [](const BuiltinCall& c) -> Value { return !c.self.is_undefined(); }},
    {"undefined", "", [](const BuiltinCall& c) -> Value { return c.self.is_undefined(); }},
    {"none", "", [](const BuiltinCall& c) -> Value { return c.self.is_none(); }},
    {"string", "", [](const BuiltinCall& c) -> Value { return c.self.text() != nullptr; }},
    {"number", "", [](const BuiltinCall& c) -> Value { return c.self.is_number(); }},
    {"integer", "", [](const BuiltinCall& c) -> Value { return c.self.is_int(); }},
    {"float", "", [](const BuiltinCall& c) -> Value { return c.self.is_float(); }},
    {"boolean", "", [](const BuiltinCall& c) -> Value { return c.self.is_bool(); }},
    {"true", "", [](const BuiltinCall& c) -> Value { return c.self.is_bool() && IsTrue(c.self); }},
    {"false", "", [](const BuiltinCall& c) -> Value { return c.self.is_bool() && !IsTrue(c.self); }},
    {"mapping", "", [](const BuiltinCall& c) -> Value { return c.self.dict() != nullptr; }},
    {"iterable", "", IsIterable},
    {"sequence", "", HasIndices},
    {"odd", "", [](const BuiltinCall& c) { return LeavesRemainder(c, int64_t{2}, 1); }},
    {"even", "", [](const BuiltinCall& c) { return LeavesRemainder(c, int64_t{2}, 0); }},
    {"divisibleby", "num", [](const BuiltinCall& c) { return LeavesRemainder(c, c.Get(0), 0); }},
    {"sameas", "other", IsSame},
    {"in", "seq", CompareTest<In>},
    {"eq", "other", CompareTest<Equal>},
    {"equalto", "other", CompareTest<Equal>},
    {"==", "other", CompareTest<Equal>},
    {"ne", "other", CompareTest<NotEqual>},
    {"!=", "other", CompareTest<NotEqual>},
    {"lt", "other", CompareTest<Less>},
    {"lessthan", "other", CompareTest<Less>},
    {"<", "other", CompareTest<Less>},
    {"le", "other", CompareTest<LessEqual>},
    {"<=", "other", CompareTest<LessEqual>},
    {"gt", "other", CompareTest<Greater>},
    {"greaterthan", "other", CompareTest<Greater>},
    {">", "other", CompareTest<Greater>},
    {"ge", "other", CompareTest<GreaterEqual>},
    {">=", "other", CompareTest<GreaterEqual>},
};

// Methods of lists and mappings

Value GetMethod(const BuiltinCall& c) {
  const Value* item = c.self.dict()->FindItem(c.Get(0));
  return item == nullptr ? c.Get(1) : *item;
}

template <SequenceKind kKind>
Value ViewMethod(const BuiltinCall& c) {
  Values out;
  for (const auto& [key, value] : c.self.dict()->items)
    out.push_back(kKind == SequenceKind::kItems  ? c.run.MakeTuple({ReadKey(key), value})
                  : kKind == SequenceKind::kKeys ? ReadKey(key)
                                                 : value);
  return c.run.Get(MakeSequence(kKind, std::move(out)));
}

Value IndexMethod(const BuiltinCall& c) {
  const Values& items = c.self.sequence()->items;
  c.run.CountSteps(GetExtent(c.self).weight);
  const auto it = std::ranges::find_if(items, [&](const Value& item) { return IsEqual(item, c.Get(0)); });
  return it == items.end() ? c.run.Fail("the value is not in the list") : Value(int64_t{it - items.begin()});
}

Value CountMethod(const BuiltinCall& c) {
  c.run.CountSteps(GetExtent(c.self).weight);
  const auto is_equal = [&](const Value& item) { return IsEqual(item, c.Get(0)); };
  return int64_t{std::ranges::count_if(c.self.sequence()->items, is_equal)};
}

constexpr Builtin kListMethods[] = {{"index", "value", IndexMethod}, {"count", "value", CountMethod}};
constexpr Builtin kDictMethods[] = {{"get", "key default?", GetMethod},
                                    {"items", "", ViewMethod<SequenceKind::kItems>},
                                    {"keys", "", ViewMethod<SequenceKind::kKeys>},
                                    {"values", "", ViewMethod<SequenceKind::kValues>}};

// Global functions

Value MakeRange(const BuiltinCall& c) {
  const int64_t start = c.Has(1) ? c.Integer(0) : 0, stop = c.Integer(c.Has(1) ? 1 : 0), step = c.Integer(2, 1);
  if (step == 0) return c.run.Fail("the step must not be zero");
  const auto distance = static_cast<long double>(stop) - start;
  if (distance / step > kMaxRange) return c.run.Fail("ranges of more than ", kMaxRange, " numbers are refused");
  const int64_t count = distance / step <= 0 ? 0 : static_cast<int64_t>((distance + step - (step > 0 ? 1 : -1)) / step);
  if (!c.run.CountSteps(count)) return {};
  Values items;
  for (int64_t i = 0; i < count; ++i) items.emplace_back(start + i * step);
  Value range = c.run.Get(MakeSequence(SequenceKind::kRange, std::move(items)));
  if (range.sequence() != nullptr) range.sequence()->range = {start, stop, step};
  return range;
}

// Collects the items of a mapping and keywords.
std::shared_ptr<Dict> CollectPairs(const BuiltinCall& c) {
  auto dict = std::make_shared<Dict>();
  if (!c.rest.positional.empty()) c.run.Fail("at most one positional argument is expected");
  if (c.Has(0) && c.Get(0).dict() == nullptr) c.run.Fail("a mapping is expected, not '", GetTypeName(c.Get(0)), "'");
  if (c.Get(0).dict() != nullptr) *dict = *c.Get(0).dict();
  for (const auto& [name, value] : c.rest.named) c.run.Check(dict->Set(name, value));
  return dict;
}

// A mutable set of attributes: namespace(…).
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> GetAttribute(std::string_view name) override {
    const Value* value = attributes_.Find(name);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  absl::Status SetAttribute(std::string_view name, Value value) override {
    if (name.starts_with('_')) return Invalid("attributes of namespaces must not begin with an underscore");
    return attributes_.Set(name, std::move(value));
  }
  void Release() override { attributes_ = {}; }

 private:
  Dict attributes_;
};

Value MakeNamespace(const BuiltinCall& c) {
  const auto attributes = c.run.Make<Namespace>();
  const std::shared_ptr<Dict> pairs = CollectPairs(c);
  for (const auto& [key, value] : pairs->items) c.run.Check(attributes->SetAttribute(key, value));
  return std::shared_ptr<Object>(attributes);
}

Value RaiseException(const BuiltinCall& c) {
  c.run.Check(absl::FailedPreconditionError(ToAbsl(PrintableLine(Print(c.Get(0))))));
  return {};
}

Value FormatTime(const BuiltinCall& c) {
  const std::string format(c.Text(0));
  const std::time_t now = c.run.now();
  std::tm local = {};
  localtime_r(&now, &local);
  char text[4096];
  const size_t size = format.empty() ? 0 : std::strftime(text, sizeof text, format.c_str(), &local);
  const std::string_view written(text, size);
  return FindInvalidUtf8(written) == written.npos ? Value(written) : c.run.Fail("the time has no text");
}

constexpr Builtin kGlobals[] = {{"range", "start stop? step?", MakeRange},
                                {"dict", "mapping? *", [](const BuiltinCall& c) -> Value { return CollectPairs(c); }},
                                {"namespace", "mapping? *", MakeNamespace},
                                {"raise_exception", "message", RaiseException},
                                {"strftime_now", "format", FormatTime}};

const Builtin* FindBuiltin(std::span<const Builtin> table, std::string_view name) {
  const auto it = std::ranges::find(table, name, &Builtin::name);
  return it == table.end() ? nullptr : &*it;
}

}  // namespace

const Value& BuiltinCall::Get(size_t i) const {
  static const Value* const kNone = new Value(None());
  return Has(i) ? *values[i] : *kNone;
}

std::string_view BuiltinCall::Text(size_t i) const {
  if (Get(i).text() != nullptr) return *Get(i).text();
  run.Fail("a string is expected, not '", GetTypeName(Get(i)), "'");
  return "";
}

int64_t BuiltinCall::Integer(size_t i, int64_t otherwise) const {
  if (!Has(i)) return otherwise;
  if (!values[i]->integer()) run.Fail("an integer is expected, not '", GetTypeName(*values[i]), "'");
  return values[i]->integer().value_or(otherwise);
}

Value CallBuiltin(Interpreter& run, const Builtin& builtin, const Value& self, const CallArguments& arguments) {
  const Value printed = builtin.prints_self && self.text() == nullptr ? Value(Print(self)) : Value();
  BuiltinCall call = {.run = run, .self = printed.is_undefined() ? self : printed};
  if (const std::string wrong = Bind(builtin, arguments, &call); !wrong.empty()) run.Fail(wrong);
  CountSize(run, self);
  if (run.failed()) return {};
  Value result = builtin.run(call);
  if (run.failed()) {
    const absl::Status error = run.TakeError();
    run.Check(absl::IsInvalidArgument(error) ? Annotate(error, StrCat(builtin.name, ": ")) : error);
  }
  CountSize(run, result);
  return result;
}

const Builtin* FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), SequenceFilters(), NumberFilters()}) {
    if (const Builtin* filter = FindBuiltin(table, name)) return filter;
  }
  return nullptr;
}

const Builtin* FindTest(std::string_view name) { return FindBuiltin(kTests, name); }
const Builtin* FindGlobal(std::string_view name) { return FindBuiltin(kGlobals, name); }
bool IsDictMethod(std::string_view name) { return FindBuiltin(kDictMethods, name) != nullptr; }

const Builtin* FindMethod(const Value& value, std::string_view name) {
  if (value.text() != nullptr) return FindBuiltin(TextMethods(), name);
  if (value.dict() != nullptr) return FindBuiltin(kDictMethods, name);
  const bool is_list = value.sequence() != nullptr && value.sequence()->is_indexed();
  return is_list ? FindBuiltin(kListMethods, name) : nullptr;
}

Value MakeFunction(const Builtin& builtin, Value self) {
  return std::shared_ptr<Object>(std::make_shared<Function>(builtin, std::move(self)));
}

}  // namespace onnxtrain::jinja
