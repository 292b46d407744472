#include <limits>

#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

// Pairs of shapes that broadcast in different ways.
const std::pair<Shape, Shape> kPairs[] = {
    {{2, 3, 4}, {2, 3, 4}}, {{2, 3, 4}, {4}},          {{3, 1}, {2, 1, 4}}, {{}, {2, 5}}, {{7}, {}},
    {{1, 6}, {1, 1, 6}},    {{2, 3, 4, 5}, {3, 1, 1}},
};

std::string CaseName(const std::string& op, size_t i) { return i == 0 ? op : op + "_broadcast" + std::to_string(i); }

void AddPairs(std::vector<Case>* cases, const std::string& op, Input (*a)(Shape), Input (*b)(Shape),
              const Attrs& attrs = {}) {
  for (size_t i = 0; i < std::size(kPairs); ++i) {
    cases->push_back({CaseName(op, i), op, {a(kPairs[i].first), b(kPairs[i].second)}, attrs});
  }
}

// Two inputs that are nowhere equal: one has values apart from each other, the other lies between them.
Input Between(Shape shape) { return Uniform(std::move(shape), 0.001, 0.002); }

Input SmallInts(Shape shape) { return Ints(std::move(shape), -4, 4); }

// Every integer type; unsigned ones of 64 bits beyond what is positive as a signed number, too.
void AddSmallTypes(std::vector<Case>* cases) {
  const DType dtypes[] = {DType::kInt8, DType::kInt16, DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
  for (DType dtype : dtypes) {
    const bool is_signed = dtype == DType::kInt8 || dtype == DType::kInt16;
    const std::string type(onnxtrain::ToString(dtype));
    const Input a = Ints({3, 5}, is_signed ? -99 : 0, 99, dtype), b = Ints({5}, is_signed ? -99 : 0, 99, dtype);
    for (std::string op :
         {"Add", "Sub", "Mul", "Min", "Max", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}) {
      cases->push_back({StrCat(op, "_", type), op, {a, b}, {}});
    }
    const Input divisor = Ints({5}, 1, 9, dtype);
    cases->push_back({"Div_" + type, "Div", {a, divisor}, {}});
    cases->push_back({"Mod_" + type, "Mod", {a, divisor}, {{"fmod", int64_t{0}}}});
    cases->push_back({"Mod_" + type + "_fmod", "Mod", {a, divisor}, {{"fmod", int64_t{1}}}});
    cases->push_back({"Pow_" + type, "Pow", {a, Ints({5}, 0, 3, dtype)}, {}});
    cases->push_back({"Where_" + type, "Where", {Bools({3, 1}), a, b}, {}});
  }
  const Input large = IntValues({6}, {-1, -2, 0, 1, 5, std::numeric_limits<int64_t>::min()}, DType::kUInt64);
  const Input other = IntValues({6, 1}, {-1, -3, 1, 2, 7, std::numeric_limits<int64_t>::max()}, DType::kUInt64);
  for (std::string op :
       {"Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}) {
    cases->push_back({op + "_u64_large", op, {large, other}, {}});
  }
  cases->push_back({"Mod_u64_large", "Mod", {large, other}, {{"fmod", int64_t{0}}}});
}

}  // namespace

std::vector<Case> BinaryCases() {
  std::vector<Case> cases;
  for (std::string op : {"Add", "Sub", "Mul"}) AddPairs(&cases, op, Normal, Normal);
  AddPairs(&cases, "Div", Normal, Positive);
  AddPairs(&cases, "Pow", Positive, Normal);
  for (std::string op : {"Min", "Max"}) AddPairs(&cases, op, WellSeparated, Between);
  AddPairs(&cases, "PRelu", WellSeparated, Normal);
  for (std::string op : {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    AddPairs(&cases, op, SmallInts, SmallInts);
  for (std::string op : {"And", "Or", "Xor"}) AddPairs(&cases, op, Bools, Bools);

  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Input odd = Fixed(Values({6}, {nan, inf, -inf, 0, -0.0, 1})),
              other = Fixed(Values({6, 1}, {inf, -inf, nan, 0, 2, -1}));
  for (std::string op :
       {"Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}) {
    cases.push_back({op + "_special", op, {odd, other}, {}});
  }
  for (std::string op : {"Add", "Sub", "Mul", "Min", "Max"}) {
    cases.push_back({op + "_i64", op, {Ints({3, 5}, -99, 99), Ints({5}, -99, 99)}, {}});
    cases.push_back({op + "_i32", op, {Ints({3, 5}, -99, 99, DType::kInt32), Ints({5}, -99, 99, DType::kInt32)}, {}});
  }
  // Integers divided by zero give 0, on every backend.
  for (DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8}) {
    const std::string type(onnxtrain::ToString(dtype));
    const Input a = IntValues({4}, {7, 0, 9, 9}, dtype), by = IntValues({4}, {0, 0, 0, 2}, dtype);
    cases.push_back({"Div_by_zero_" + type, "Div", {a, by}, {}});
    for (int64_t fmod : {0, 1})
      cases.push_back({"Mod_by_zero_" + type + (fmod == 1 ? "_fmod" : ""), "Mod", {a, by}, {{"fmod", fmod}}});
  }
  AddSmallTypes(&cases);
  cases.push_back({"Equal_bool", "Equal", {Bools({9}), Bools({9})}, {}});
  cases.push_back(
      {"Div_i64_truncates", "Div", {IntValues({6}, {7, -7, 7, -7, 0, 6}), IntValues({6}, {2, 2, -2, -2, 5, 3})}, {}});
  const int64_t least = std::numeric_limits<int64_t>::min();
  cases.push_back({"Div_i64_overflow", "Div", {IntValues({2}, {least, 5}), IntValues({}, {-1})}, {}});
  cases.push_back(
      {"Mod_i64_overflow", "Mod", {IntValues({2}, {least, 5}), IntValues({}, {-1})}, {{"fmod", int64_t{1}}}});
  const Input dividends = IntValues({4}, {7, -7, 7, -7}), divisors = IntValues({4}, {3, 3, -3, -3});
  cases.push_back({"Mod_i64", "Mod", {dividends, divisors}, {{"fmod", int64_t{0}}}});
  cases.push_back({"Mod_i64_fmod", "Mod", {dividends, divisors}, {{"fmod", int64_t{1}}}});
  cases.push_back({"Mod_f32_fmod",
                   "Mod",
                   {Values({4}, {5.3, -5.3, 5.3, -5.3}), Values({4}, {2, 2, -2, -2})},
                   {{"fmod", int64_t{1}}}});
  cases.push_back({"Pow_square", "Pow", {Normal({3, 4}), Fixed(Values({}, {2}))}, {}});
  cases.push_back({"Pow_cube", "Pow", {Normal({3, 4}), Fixed(Values({}, {3}))}, {}});
  cases.push_back({"Pow_half", "Pow", {Positive({3, 4}), Fixed(Values({1}, {0.5}))}, {}});
  cases.push_back({"Pow_i64", "Pow", {Ints({7}, -5, 5), Ints({7}, 0, 5)}, {}});

  cases.push_back({"Where", "Where", {Bools({2, 3, 4}), Normal({2, 3, 4}), Normal({2, 3, 4})}, {}});
  cases.push_back({"Where_broadcast", "Where", {Bools({3, 1}), Normal({4}), Normal({2, 1, 1})}, {}});
  cases.push_back({"Where_scalars", "Where", {Bools({3, 5}), Normal({}), Normal({1})}, {}});
  cases.push_back({"Where_i64", "Where", {Bools({9}), Ints({9}, -5, 5), Ints({}, 7, 7)}, {}});
  return cases;
}

}  // namespace onnxtrain::cases
