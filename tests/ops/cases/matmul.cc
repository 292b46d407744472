#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct Row {
  std::string_view name;
  Shape a, b;
};

const Row kRows[] = {
    {"", {5, 7}, {7, 3}},
    {"_dot", {1, 19}, {19, 1}},
    {"_outer", {6, 1}, {1, 5}},
    {"_larger", {33, 65}, {65, 47}},
    {"_batch", {3, 4, 5}, {3, 5, 2}},
    {"_heads", {2, 3, 4, 5}, {2, 3, 5, 6}},
    {"_shared_right", {2, 3, 4, 5}, {5, 6}},
    {"_shared_right_ones", {2, 4, 5}, {1, 5, 6}},
    {"_shared_left", {4, 5}, {3, 5, 2}},
    {"_broadcast_batch", {2, 1, 4, 5}, {3, 5, 2}},
    {"_batch_of_one", {1, 4, 5}, {1, 1, 5, 2}},
};

Shape Swapped(Shape s) {
  std::swap(s[s.size() - 1], s[s.size() - 2]);
  return s;
}

}  // namespace

std::vector<Case> MatmulCases() {
  std::vector<Case> cases;
  for (const Row& row : kRows) {
    for (int64_t ta : {0, 1}) {
      for (int64_t tb : {0, 1}) {
        const std::string name = "MatMul" + std::string(row.name) + (ta ? "_ta" : "") + (tb ? "_tb" : "");
        cases.push_back({name,
                         "MatMul",
                         {Normal(ta ? Swapped(row.a) : row.a), Normal(tb ? Swapped(row.b) : row.b)},
                         {{"trans_a", ta}, {"trans_b", tb}}});
      }
    }
  }
  return cases;
}

}  // namespace onnxtrain::cases
