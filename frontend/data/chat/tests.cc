// Implements tests, which follow `is`.
#include <algorithm>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/text_functions.h"
#include "frontend/data/text/case_mapping.h"

namespace onnxtrain::jinja {
namespace {

template <bool (*kHolds)(const Value&)>
absl::StatusOr<Value> Holds(Interpreter& /*run*/, const Value& self, const Bound& /*a*/) {
  return Value(kHolds(self));
}

bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsText(const Value& v) { return v.text() != nullptr; }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsInteger(const Value& v) { return v.is_int(); }
bool IsFloat(const Value& v) { return v.is_float(); }
bool IsBoolean(const Value& v) { return v.is_bool(); }
bool IsConstantTrue(const Value& v) { return v.is_bool() && IsTrue(v); }
bool IsConstantFalse(const Value& v) { return v.is_bool() && !IsTrue(v); }
bool IsMapping(const Value& v) { return v.dict() != nullptr; }
bool IsLoop(const Value& v) { return v.object() != nullptr && v.object()->type_name() == "LoopContext"; }
bool IsIterable(const Value& v) { return GetLength(v).has_value() || v.sequence() != nullptr || IsLoop(v); }
bool IsSequence(const Value& v) {
  const Sequence* sequence = v.sequence();
  return sequence != nullptr ? sequence->is_indexed() : GetLength(v).has_value();
}

template <BinaryOperator kCompare>
absl::StatusOr<Value> CompareTest(Interpreter& run, const Value& self, const Bound& a) {
  return kCompare(run, self, a.Get(0));
}

absl::StatusOr<Value> LeavesRemainder(Interpreter& run, const Value& self, const Value& divisor, int64_t remainder) {
  if (self.text() != nullptr) return Invalid("a number is expected");
  ASSIGN_OR_RETURN(const Value left, Modulo(run, self, divisor));
  return Value(IsEqual(left, remainder));
}

template <int64_t kRemainder>
absl::StatusOr<Value> ParityTest(Interpreter& run, const Value& self, const Bound& /*a*/) {
  return LeavesRemainder(run, self, int64_t{2}, kRemainder);
}

absl::StatusOr<Value> DivisibleTest(Interpreter& run, const Value& self, const Bound& a) {
  return LeavesRemainder(run, self, a.Get(0), 0);
}

absl::StatusOr<Value> SameTest(Interpreter& /*run*/, const Value& self, const Bound& a) {
  const Value other = a.Get(0);
  if (self.sequence() != nullptr || self.dict() != nullptr)
    return Value(self.sequence() == other.sequence() && self.dict() == other.dict());
  return Value(GetTypeName(self) == GetTypeName(other) && IsEqual(self, other));
}

constexpr Builtin kTests[] = {
    {"defined", "", Holds<IsDefined>},
    {"undefined", "", Holds<IsUndefined>},
    {"none", "", Holds<IsNone>},
    {"string", "", Holds<IsText>},
    {"number", "", Holds<IsNumber>},
    {"integer", "", Holds<IsInteger>},
    {"float", "", Holds<IsFloat>},
    {"boolean", "", Holds<IsBoolean>},
    {"true", "", Holds<IsConstantTrue>},
    {"false", "", Holds<IsConstantFalse>},
    {"mapping", "", Holds<IsMapping>},
    {"iterable", "", Holds<IsIterable>},
    {"sequence", "", Holds<IsSequence>},
    {"odd", "", ParityTest<1>},
    {"even", "", ParityTest<0>},
    {"divisibleby", "num", DivisibleTest},
    {"sameas", "other", SameTest},
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

}  // namespace

std::span<const Builtin> Tests() { return kTests; }

}  // namespace onnxtrain::jinja
