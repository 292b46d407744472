#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct SliceRow {
  std::string_view name;
  Shape x;
  IntVector starts, sizes, steps;
};

const SliceRow kSlices[] = {
    {"", {5, 6}, {1, 2}, {3, 4}, {1, 1}},
    {"_steps", {7, 9}, {1, 0}, {3, 3}, {2, 4}},
    {"_backwards", {5, 6}, {4, 5}, {5, 3}, {-1, -2}},
    {"_mixed", {4, 5, 6}, {3, 0, 5}, {2, 5, 2}, {-2, 1, -3}},
    {"_1d", {9}, {3}, {1}, {1}},
    {"_empty", {4, 3}, {0, 1}, {0, 2}, {1, 1}},
};

}  // namespace

std::vector<Case> ShapeCases() {
  std::vector<Case> cases;
  cases.push_back({"Constant", "Constant", {}, {{"value", HostTensor::FromInts({1, 2, 3})}}});
  cases.push_back({"Reshape", "Reshape", {Normal({2, 3, 4})}, {{"shape", IntVector{6, 4}}}});
  cases.push_back({"Reshape_scalar", "Reshape", {Normal({1, 1})}, {{"shape", IntVector{}}}});
  cases.push_back({"Reshape_i64", "Reshape", {Ints({2, 3}, -9, 9)}, {{"shape", IntVector{3, 1, 2}}}});
  cases.push_back({"Transpose", "Transpose", {Normal({3, 4})}, {{"perm", IntVector{1, 0}}}});
  cases.push_back({"Transpose_heads", "Transpose", {Normal({2, 3, 4, 5})}, {{"perm", IntVector{0, 2, 1, 3}}}});
  cases.push_back({"Transpose_cycle", "Transpose", {Normal({2, 3, 4})}, {{"perm", IntVector{2, 0, 1}}}});
  cases.push_back({"Transpose_identity", "Transpose", {Normal({2, 3})}, {{"perm", IntVector{0, 1}}}});
  cases.push_back({"Transpose_bool", "Transpose", {Bools({2, 3, 4})}, {{"perm", IntVector{2, 1, 0}}}});
  cases.push_back({"Expand", "Expand", {Normal({3, 1})}, {{"shape", IntVector{2, 3, 4}}}});
  cases.push_back({"Expand_scalar", "Expand", {Normal({})}, {{"shape", IntVector{2, 3}}}});
  cases.push_back({"Expand_same", "Expand", {Normal({2, 3})}, {{"shape", IntVector{2, 3}}}});
  cases.push_back({"Expand_i64", "Expand", {Ints({1, 3}, -9, 9)}, {{"shape", IntVector{4, 3}}}});
  cases.push_back({"Concat", "Concat", {Normal({2, 3}), Normal({2, 1}), Normal({2, 4})}, {{"axis", int64_t{1}}}});
  cases.push_back({"Concat_first", "Concat", {Normal({2, 3}), Normal({4, 3})}, {{"axis", int64_t{0}}}});
  cases.push_back({"Concat_one", "Concat", {Normal({2, 3})}, {{"axis", int64_t{0}}}});
  cases.push_back({"Concat_empty_part", "Concat", {Normal({2, 3}), Normal({2, 0})}, {{"axis", int64_t{1}}}});
  cases.push_back({"Concat_i64", "Concat", {Ints({3}, 0, 9), Ints({2}, 0, 9)}, {{"axis", int64_t{0}}}});
  const Attrs three = {{"axis", int64_t{1}}, {"sizes", IntVector{2, 1, 4}}, {"num_outputs", int64_t{3}}};
  cases.push_back({"Split", "Split", {Normal({3, 7, 2})}, three, {0, 1, 2}});
  cases.push_back({"Split_partly", "Split", {Normal({3, 7})}, three, {1}});
  cases.push_back({"Split_one",
                   "Split",
                   {Normal({4})},
                   {{"axis", int64_t{0}}, {"sizes", IntVector{4}}, {"num_outputs", int64_t{1}}}});
  for (const SliceRow& row : kSlices) {
    const std::string suffix(row.name);
    cases.push_back({"Slice" + suffix,
                     "Slice",
                     {Normal(row.x)},
                     {{"starts", row.starts}, {"sizes", row.sizes}, {"steps", row.steps}}});
    cases.push_back({"SliceGrad" + suffix,
                     "SliceGrad",
                     {Normal(row.sizes)},
                     {{"input_shape", row.x}, {"starts", row.starts}, {"steps", row.steps}}});
  }
  cases.push_back({"Slice_i64",
                   "Slice",
                   {Ints({9}, 0, 9)},
                   {{"starts", IntVector{8}}, {"sizes", IntVector{9}}, {"steps", IntVector{-1}}}});
  cases.push_back({"Pad", "Pad", {Normal({2, 3})}, {{"pads", IntVector{1, 0, 2, 3}}}});
  cases.push_back({"Pad_value", "Pad", {Normal({2, 3, 4})}, {{"pads", IntVector{0, 1, 0, 0, 1, 2}}, {"value", -1.5}}});
  cases.push_back({"Pad_nothing", "Pad", {Normal({3})}, {{"pads", IntVector{0, 0}}}});
  cases.push_back({"Pad_i64", "Pad", {Ints({3}, 1, 9)}, {{"pads", IntVector{1, 1}}, {"value", 7.0}}});
  return cases;
}

}  // namespace onnxtrain::cases
