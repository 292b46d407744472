// ScatterElements, TopK and bits.
#include <limits>

#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct Row {
  std::string name;
  Shape x, index;
  int64_t axis;
};

const Row kScatters[] = {
    {"", {4, 3}, {2, 3}, 0}, {"_last", {3, 5}, {3, 4}, 1}, {"_middle", {2, 5, 3}, {2, 4, 2}, 1}, {"_1d", {6}, {3}, 0}};

std::vector<Case> Scatters() {
  std::vector<Case> cases;
  for (const Row& row : kScatters) {
    for (std::string reduction : {"none", "add", "mul", "max", "min"}) {
      // Indices repeat, so that updates meet.
      cases.push_back(
          {"ScatterElements_" + reduction + row.name,
           "ScatterElements",
           {WellSeparated(row.x), Ints(row.index, -row.x[row.axis], row.x[row.axis] - 1), WellSeparated(row.index)},
           {{"axis", row.axis}, {"reduction", reduction}}});
    }
  }
  return cases;
}

std::vector<Case> SpecialScatters() {
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  const Attrs mul{{"axis", int64_t{0}}, {"reduction", std::string("mul")}};
  return {
      {"ScatterElements_out_of_range",
       "ScatterElements",
       {Normal({4}), IntValues({5}, {4, -5, 1000000, least, most}), Normal({5})}},
      {"ScatterElements_nothing", "ScatterElements", {Normal({4, 2}), Ints({0, 2}, 0, 0), Normal({0, 2})}},
      {"ScatterElements_zeros",
       "ScatterElements",
       {Values({5}, {0, 2, 0, 3, 4}), IntValues({6}, {0, 1, 1, 2, 3, 3}), Values({6}, {5, 0, 3, 0, 0, 0})},
       mul},
      {"ScatterElements_bools", "ScatterElements", {Bools({4, 3}), Ints({2, 3}, 0, 3), Bools({2, 3})}},
      {"ScatterElements_i32_mul",
       "ScatterElements",
       {Ints({5}, -9, 9, DType::kInt32), Ints({4}, 0, 4), Ints({4}, -9, 9, DType::kInt32)},
       mul},
      {"ScatterElements_u16_max",
       "ScatterElements",
       {IntValues({3}, {1, 40000, 65535}, DType::kUInt16), IntValues({3}, {0, 1, 2}),
        IntValues({3}, {50000, 3, 2}, DType::kUInt16)},
       {{"reduction", std::string("max")}}},
  };
}

std::vector<Case> TopKs() {
  auto attrs = [](int64_t axis, int64_t k, int64_t largest) {
    return Attrs{{"axis", axis}, {"k", k}, {"largest", largest}};
  };
  return {
      {"TopK", "TopK", {WellSeparated({3, 7})}, attrs(1, 3, 1)},
      {"TopK_smallest", "TopK", {WellSeparated({3, 7})}, attrs(1, 4, 0)},
      {"TopK_first_axis", "TopK", {WellSeparated({6, 2, 3})}, attrs(0, 2, 1)},
      {"TopK_all", "TopK", {WellSeparated({2, 5})}, attrs(1, 5, 1)},
      {"TopK_none", "TopK", {WellSeparated({2, 5})}, attrs(1, 0, 1)},
      {"TopK_long", "TopK", {WellSeparated({2, 300})}, attrs(1, 17, 1)},
      {"TopK_ties", "TopK", {Fixed(Values({2, 4}, {1, 3, 3, 1, 2, 2, 2, 2}))}, attrs(1, 3, 1)},
      {"TopK_ties_smallest", "TopK", {Fixed(Values({2, 4}, {1, 3, 3, 1, 2, 2, 2, 2}))}, attrs(1, 3, 0)},
      {"TopK_i64", "TopK", {Ints({4, 6}, -3, 3)}, attrs(1, 4, 1)},
      {"TopK_u64",
       "TopK",
       {IntValues({4}, {3, -1, 0, std::numeric_limits<int64_t>::min()}, DType::kUInt64)},
       attrs(0, 3, 1)},
      {"TopK_u16", "TopK", {IntValues({4}, {3, 65535, 0, 40000}, DType::kUInt16)}, attrs(0, 3, 0)},
  };
}

std::vector<Case> Bits() {
  std::vector<Case> cases;
  for (std::string op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) {
    cases.push_back({op, op, {Ints({3, 4}, -99, 99, DType::kInt32), Ints({4}, -99, 99, DType::kInt32)}});
    cases.push_back({op + "_u64", op, {Ints({3, 1}, -99, 99, DType::kUInt64), Ints({3, 4}, -99, 99, DType::kUInt64)}});
    cases.push_back({op + "_u8", op, {Ints({7}, 0, 255, DType::kUInt8), Ints({7}, 0, 255, DType::kUInt8)}});
  }
  cases.push_back({"BitwiseNot", "BitwiseNot", {Ints({3, 4}, -99, 99, DType::kInt16)}});
  cases.push_back({"BitwiseNot_u32", "BitwiseNot", {Ints({9}, 0, 99, DType::kUInt32)}});
  const struct {
    std::string name;
    DType dtype;
    int64_t bits;
  } kUnsigned[] = {
      {"", DType::kUInt8, 8}, {"_u16", DType::kUInt16, 16}, {"_u32", DType::kUInt32, 32}, {"_u64", DType::kUInt64, 64}};
  for (const auto& u : kUnsigned) {
    for (std::string op : {"ShiftLeft", "ShiftRight"}) {
      // All bits set, the highest alone, one in the middle; by nothing, one, all but one and all places.
      cases.push_back({op + u.name,
                       op,
                       {IntValues({5, 1}, {-1, -1, int64_t{1} << (u.bits - 1), 37, 1}, u.dtype),
                        IntValues({4}, {0, 1, u.bits - 1, u.bits}, u.dtype)}});
    }
  }
  return cases;
}

}  // namespace

std::vector<Case> ScatterCases() {
  std::vector<Case> cases;
  for (auto family : {Scatters, SpecialScatters, TopKs, Bits}) {
    for (Case& c : family()) cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace onnxtrain::cases
