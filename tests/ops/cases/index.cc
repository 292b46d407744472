#include <limits>

#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct Row {
  std::string_view name;
  Shape x, index;
  int64_t axis;
};

const Row kGathers[] = {{"", {7, 3}, {2, 4}, 0},
                        {"_last", {3, 7}, {5}, 1},
                        {"_middle", {2, 6, 3}, {2, 2}, 1},
                        {"_scalar_index", {4, 3}, {}, 0},
                        {"_embedding", {50, 16}, {4, 12}, 0},
                        {"_1d", {9}, {3}, 0}};
const Row kElements[] = {{"", {4, 3}, {2, 3}, 0},
                         {"_last", {3, 5}, {3, 8}, 1},
                         {"_middle", {2, 5, 3}, {2, 4, 3}, 1},
                         {"_smaller", {4, 5}, {2, 7}, 1}};

Shape Gathered(const Row& row) {
  Shape y(row.x.begin(), row.x.begin() + row.axis);
  y.insert(y.end(), row.index.begin(), row.index.end());
  y.insert(y.end(), row.x.begin() + row.axis + 1, row.x.end());
  return y;
}

// An operator and its gradient, which takes dy in place of x.
void AddBoth(std::vector<Case>* cases, const std::string& op, const Row& row, const Shape& y, const std::string& suffix,
             Input index) {
  cases->push_back({op + suffix, op, {Normal(row.x), index}, {{"axis", row.axis}}});
  cases->push_back(
      {op + "Grad" + suffix, op + "Grad", {Normal(y), index}, {{"axis", row.axis}, {"input_shape", row.x}}});
}

}  // namespace

std::vector<Case> IndexCases() {
  std::vector<Case> cases;
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  for (const Row& row : kGathers) {
    AddBoth(&cases, "Gather", row, Gathered(row), std::string(row.name),
            Ints(row.index, -row.x[row.axis], row.x[row.axis] - 1));
  }
  for (const Row& row : kElements) {
    AddBoth(&cases, "GatherElements", row, row.index, std::string(row.name),
            Ints(row.index, -row.x[row.axis], row.x[row.axis] - 1));
  }
  // Far outside: clamped, and never a read of foreign memory.
  const Row far = {"", {5, 2}, {6}, 0}, far_elements = {"", {5, 1}, {6, 1}, 0};
  AddBoth(&cases, "Gather", far, Gathered(far), "_out_of_range", IntValues({6}, {5, -6, 1000000, least, most, 2}));
  AddBoth(&cases, "GatherElements", far_elements, {6, 1}, "_out_of_range",
          IntValues({6, 1}, {5, -6, 1000000, least, most, 2}));
  cases.push_back({"Gather_i64", "Gather", {Ints({5}, -9, 9), Ints({2, 2}, 0, 4)}, {{"axis", int64_t{0}}}});
  return cases;
}

}  // namespace onnxtrain::cases
