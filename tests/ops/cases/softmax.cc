#include <limits>

#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct Row {
  std::string_view name;
  Shape x;
  int64_t axis;
};

const Row kRows[] = {{"", {5, 11}, 1},       {"_first", {5, 11}, 0}, {"_middle", {2, 7, 3}, 1}, {"_1d", {9}, 0},
                     {"_long", {3, 517}, 1}, {"_one", {4, 1}, 1},    {"_4d", {2, 2, 3, 5}, 3}};

}  // namespace

std::vector<Case> SoftmaxCases() {
  std::vector<Case> cases;
  for (const Row& row : kRows) {
    const std::string suffix(row.name);
    const Attrs attrs = {{"axis", row.axis}};
    cases.push_back({"Softmax" + suffix, "Softmax", {Uniform(row.x, -4, 4)}, attrs});
    cases.push_back({"LogSoftmax" + suffix, "LogSoftmax", {Uniform(row.x, -4, 4)}, attrs});
    cases.push_back({"SoftmaxGrad" + suffix, "SoftmaxGrad", {Normal(row.x), Uniform(row.x, 0, 0.5)}, attrs});
    cases.push_back({"LogSoftmaxGrad" + suffix, "LogSoftmaxGrad", {Normal(row.x), Uniform(row.x, -3, 0)}, attrs});
  }
  const double inf = std::numeric_limits<double>::infinity();
  for (std::string op : {"Softmax", "LogSoftmax"}) {
    cases.push_back({op + "_large",
                     op,
                     {Fixed(Values({2, 3}, {1e4, 1e4 - 1, -1e4, -1e4, -1e4, -1e4 + 2}))},
                     {{"axis", int64_t{1}}}});
    cases.push_back({op + "_masked", op, {Fixed(Values({2, 3}, {1, -inf, 2, -inf, 0, -inf}))}, {{"axis", int64_t{1}}}});
  }
  cases.push_back(
      {"Attention", "Attention", {Normal({2, 3, 5, 4}), Normal({2, 3, 6, 4}), Normal({2, 3, 6, 7})}, {{"scale", 0.5}}});
  cases.push_back({"Attention_mask",
                   "Attention",
                   {Normal({2, 3, 5, 4}), Normal({2, 3, 6, 4}), Normal({2, 3, 6, 4}), Normal({2, 1, 1, 6})},
                   {{"scale", 0.5}}});
  cases.push_back(
      {"Attention_flat", "Attention", {Normal({5, 4}), Normal({6, 4}), Normal({6, 3}), Normal({5, 6})}, {}});
  cases.push_back(
      {"Attention_batch", "Attention", {Normal({3, 5, 8}), Normal({3, 5, 8}), Normal({3, 5, 8})}, {{"scale", 0.3}}});
  // A query that sees no key: zeros, and no gradient.
  cases.push_back({"Attention_hidden",
                   "Attention",
                   {Normal({2, 2, 4}), Normal({2, 3, 4}), Normal({2, 3, 4}),
                    Fixed(Values({2, 1, 3}, {-inf, -inf, -inf, 0, -inf, 1}))},
                   {{"scale", 0.5}}});
  const auto add_gradient = [&](const std::string& suffix, const Shape& q, const Shape& k, const Shape& v,
                                const Shape& mask) {
    Shape dy = q;
    dy.back() = v.back();
    std::vector<Input> inputs = {Normal(dy), Normal(q), Normal(k), Normal(v)};
    if (!mask.empty()) inputs.push_back(Fixed(Normal(mask)));
    cases.push_back({"AttentionGrad" + suffix, "AttentionGrad", inputs, {{"scale", 0.4}}, {0, 1, 2}});
  };
  add_gradient("", {2, 3, 5, 4}, {2, 3, 6, 4}, {2, 3, 6, 7}, {});
  add_gradient("_mask", {2, 2, 5, 4}, {2, 2, 6, 4}, {2, 2, 6, 4}, {2, 1, 1, 6});
  add_gradient("_flat", {5, 4}, {6, 4}, {6, 3}, {5, 6});
  add_gradient("_vectors", {2, 7, 16}, {2, 19, 16}, {2, 19, 20}, {7, 1});
  const Attrs dropped = {{"scale", 0.5}, {"ratio", 0.3}, {"stream", int64_t{7}}};
  const Attrs capped = {{"scale", 0.5}, {"softcap", 1.5}};
  Attrs both = dropped;
  both.Set("softcap", 0.8);
  const Input q = Normal({2, 3, 5, 4}), k = Normal({2, 3, 6, 4}), v = Normal({2, 3, 6, 7}), mask = Normal({2, 1, 5, 6});
  cases.push_back({"Attention_dropout", "Attention", {q, k, v, Absent(), Key()}, dropped});
  cases.push_back({"Attention_dropout_mask", "Attention", {q, k, v, Fixed(mask), Key()}, dropped});
  cases.push_back({"Attention_softcap", "Attention", {q, k, v}, capped});
  cases.push_back({"Attention_softcap_dropout_learned_mask", "Attention", {q, k, v, mask, Key()}, both});
  const Input dy = Normal({2, 3, 5, 7}), fixed = Fixed(mask);
  cases.push_back({"AttentionGrad_dropout", "AttentionGrad", {dy, q, k, v, Absent(), Key()}, dropped, {0, 1, 2}});
  cases.push_back({"AttentionGrad_softcap", "AttentionGrad", {dy, q, k, v, fixed}, capped, {0, 1, 2}});
  cases.push_back({"AttentionGrad_softcap_dropout", "AttentionGrad", {dy, q, k, v, fixed, Key()}, both, {0, 1, 2}});
  cases.push_back({"Attention_fixed_mask",
                   "Attention",
                   {Normal({2, 5, 4}), Normal({2, 6, 4}), Normal({2, 6, 4}), Fixed(Normal({5, 6}))},
                   {{"scale", 0.5}}});
  cases.push_back({"Attention_long",
                   "Attention",
                   {Normal({2, 103, 16}), Normal({2, 150, 16}), Normal({2, 150, 48}), Normal({103, 150})},
                   {{"scale", 0.3}}});
  return cases;
}

}  // namespace onnxtrain::cases
