#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

std::vector<Case> ReduceCases() {
  using Axes = std::vector<int64_t>;
  std::vector<Case> cases;
  for (std::string op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}) {
    auto input = op == "ReduceProd" ? Positive : op == "ReduceMax" || op == "ReduceMin" ? WellSeparated : Normal;
    cases.push_back({op, op, {input({3, 4, 5})}, {}});
    cases.push_back({op + "_last", op, {input({3, 4, 5})}, {{"axes", Axes{2}}}});
    cases.push_back({op + "_first_dropped", op, {input({3, 4, 5})}, {{"axes", Axes{0}}, {"keepdims", int64_t{0}}}});
    cases.push_back({op + "_two", op, {input({3, 4, 5})}, {{"axes", Axes{0, 2}}, {"keepdims", int64_t{0}}}});
    cases.push_back({op + "_channels", op, {input({2, 3, 4, 5})}, {{"axes", Axes{0, 2, 3}}, {"keepdims", int64_t{0}}}});
    cases.push_back({op + "_all_dropped", op, {input({2, 3})}, {{"keepdims", int64_t{0}}}});
    cases.push_back({op + "_scalar", op, {input({})}, {}});
    cases.push_back({op + "_ones", op, {input({2, 1, 3})}, {{"axes", Axes{1}}}});
    cases.push_back({op + "_long", op, {input({2, 1537})}, {{"axes", Axes{1}}}});
    if (op != "ReduceMean") {
      cases.push_back({op + "_i64", op, {Ints({3, 4}, -3, 3)}, {{"axes", Axes{1}}}});
      cases.push_back({op + "_i32", op, {Ints({3, 4}, -3, 3, DType::kInt32)}, {{"axes", Axes{0}}}});
    }
  }
  for (DType dtype : {DType::kInt8, DType::kInt16, DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
    const std::string type(onnxtrain::ToString(dtype));
    const int64_t sign = dtype == DType::kUInt64 ? 1 : -1;
    const Input x = IntValues({2, 3}, {9 * sign, 1, 3, 2, sign, 0}, dtype);
    for (std::string op : {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}) {
      cases.push_back({StrCat(op, "_", type), op, {x}, {{"axes", Axes{1}}}});
    }
    for (std::string op : {"ArgMax", "ArgMin", "CumSum"})
      cases.push_back({StrCat(op, "_", type), op, {x}, {{"axis", int64_t{1}}}});
  }
  const Input large = IntValues({2, 3}, {-9, 1, 3, 2, -1, 0}, DType::kUInt64);
  for (std::string op : {"ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"}) {
    cases.push_back({op + "_of_nothing", op, {Fixed(Normal({2, 0}))}, {{"axes", Axes{1}}}});
    cases.push_back({op + "_u64_large", op, {large}, {{"axes", Axes{1}}}});
  }
  for (std::string op : {"ArgMax", "ArgMin"}) cases.push_back({op + "_u64_large", op, {large}, {{"axis", int64_t{1}}}});
  // 1537 factors overflow float32.
  std::erase_if(cases, [](const Case& c) { return c.name == "ReduceProd_long"; });
  const Input ties = Values({2, 4}, {1, 3, 3, 2, 5, 5, 5, 0});
  for (std::string op : {"ReduceMax", "ReduceMin"})
    cases.push_back({op + "_ties", op, {Fixed(ties)}, {{"axes", Axes{1}}}});
  cases.push_back(
      {"ReduceProd_zeros", "ReduceProd", {Values({3, 3}, {1, 0, 2, 0, 3, 0, 1, 2, 3})}, {{"axes", Axes{1}}}});
  for (std::string op : {"ArgMax", "ArgMin"}) {
    cases.push_back({op, op, {WellSeparated({3, 4, 5})}, {{"axis", int64_t{1}}}});
    cases.push_back(
        {op + "_dropped", op, {WellSeparated({3, 4, 5})}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}}});
    cases.push_back({op + "_ties", op, {ties}, {{"axis", int64_t{1}}}});
    cases.push_back({op + "_last_index", op, {ties}, {{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}}});
    cases.push_back({op + "_i64", op, {Ints({3, 9}, -2, 2)}, {{"axis", int64_t{1}}}});
  }
  for (int64_t exclusive : {0, 1}) {
    for (int64_t reverse : {0, 1}) {
      const std::string name = std::string("CumSum") + (exclusive ? "_exclusive" : "") + (reverse ? "_reverse" : "");
      const Attrs attrs = {{"axis", int64_t{1}}, {"exclusive", exclusive}, {"reverse", reverse}};
      cases.push_back({name, "CumSum", {Normal({3, 7, 2})}, attrs});
      cases.push_back({name + "_i32", "CumSum", {Ints({3, 7}, -5, 5, DType::kInt32)}, attrs});
    }
  }
  cases.push_back({"SquaredNorm", "SquaredNorm", {Normal({3, 4, 5})}, {}});
  cases.push_back({"SquaredNorm_scalar", "SquaredNorm", {Normal({})}, {}});
  cases.push_back({"SquaredNorm_of_nothing", "SquaredNorm", {Fixed(Normal({2, 0}))}, {}});
  cases.push_back({"SquaredNorm_of_many", "SquaredNorm", {Fixed(Normal({300'000}))}, {}});
  cases.push_back({"SquaredNorm_large", "SquaredNorm", {Fixed(Values({2}, {3e29, -4e29}))}, {}});
  cases.push_back({"CumSum_first", "CumSum", {Normal({5, 3})}, {{"axis", int64_t{0}}}});
  return cases;
}

}  // namespace onnxtrain::cases
