#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

std::vector<Case> NormCases() {
  std::vector<Case> cases;
  for (const Shape& x : {Shape{6, 3}, Shape{2, 3, 5}, Shape{2, 3, 4, 5}, Shape{1, 2, 3, 2, 2}, Shape{8, 1, 3, 3}}) {
    const std::string suffix = StrCat("_", x.size(), "d", x[1] == 1 ? "_one_channel" : "");
    const Shape c = {x[1]};
    cases.push_back(
        {"BatchNorm" + suffix, "BatchNorm", {Normal(x), Normal(c), Normal(c)}, {{"epsilon", 1e-5}}, {0, 1, 2}});
    cases.push_back({"BatchNormGrad" + suffix,
                     "BatchNormGrad",
                     {Normal(x), Normal(x), Normal(c), Normal(c), Positive(c)},
                     {},
                     {0, 1, 2}});
    cases.push_back({"BatchNormInference" + suffix,
                     "BatchNormInference",
                     {Normal(x), Normal(c), Normal(c), Normal(c), Positive(c)},
                     {{"epsilon", 1e-3}}});
  }
  struct Row {
    Shape x;
    int64_t axis;
  };
  for (const Row& row : {Row{{4, 7}, 1}, Row{{2, 3, 16}, 2}, Row{{2, 3, 4, 5}, 2}, Row{{3, 5}, 0}}) {
    const Shape scale(row.x.begin() + row.axis, row.x.end());
    Shape statistic = row.x;
    for (size_t i = row.axis; i < statistic.size(); ++i) statistic[i] = 1;
    const std::string suffix = StrCat("_", row.x.size(), "d_axis", row.axis);
    const Attrs attrs = {{"axis", row.axis}, {"epsilon", 1e-5}};
    cases.push_back(
        {"LayerNorm" + suffix, "LayerNorm", {Normal(row.x), Normal(scale), Normal(scale)}, attrs, {0, 1, 2}});
    cases.push_back({"RmsNorm" + suffix, "RmsNorm", {Normal(row.x), Normal(scale)}, attrs, {0, 1}});
    cases.push_back({"LayerNorm_no_bias" + suffix, "LayerNorm", {Normal(row.x), Normal(scale)}, attrs});
    cases.push_back({"LayerNormGrad" + suffix,
                     "LayerNormGrad",
                     {Normal(row.x), Normal(row.x), Normal(scale), Normal(statistic), Positive(statistic)},
                     {{"axis", row.axis}},
                     {0, 1, 2}});
    cases.push_back({"RmsNormGrad" + suffix,
                     "RmsNormGrad",
                     {Normal(row.x), Normal(row.x), Normal(scale), Positive(statistic)},
                     {{"axis", row.axis}},
                     {0, 1}});
  }
  return cases;
}

}  // namespace onnxtrain::cases
