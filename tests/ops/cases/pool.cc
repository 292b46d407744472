#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct Geometry {
  std::string_view name;
  Shape x;
  IntVector kernel, strides, pads, dilations;
};

const Geometry kGeometries[] = {
    {"", {2, 3, 6, 8}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}},
    {"_overlapping", {2, 3, 7, 7}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {"_asymmetric_pads", {2, 2, 6, 5}, {3, 3}, {2, 1}, {0, 1, 2, 0}, {1, 1}},
    {"_wide_pads", {1, 2, 5, 5}, {3, 3}, {1, 1}, {2, 2, 2, 2}, {1, 1}},
    {"_dilated", {1, 2, 9, 8}, {3, 2}, {1, 2}, {1, 1, 1, 1}, {2, 3}},
    {"_dilated_asymmetric", {1, 2, 9, 8}, {3, 2}, {2, 2}, {0, 1, 1, 0}, {2, 2}},
    {"_leftover", {1, 3, 7, 8}, {3, 3}, {3, 3}, {0, 0, 0, 0}, {1, 1}},
    {"_global", {2, 3, 4, 5}, {4, 5}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
    {"_1d", {2, 3, 9}, {3}, {2}, {1, 1}, {1}},
    {"_1d_asymmetric", {2, 3, 10}, {3}, {2}, {0, 1}, {1}},
    {"_1d_dilated", {2, 3, 10}, {3}, {1}, {1, 1}, {2}},
    {"_3d", {1, 2, 5, 4, 6}, {2, 2, 3}, {2, 1, 2}, {1, 0, 1, 1, 0, 1}, {1, 1, 1}},
    {"_3d_asymmetric", {1, 2, 5, 4, 6}, {2, 2, 3}, {1, 2, 2}, {1, 0, 0, 0, 1, 2}, {1, 1, 1}},
    {"_3d_dilated", {1, 1, 6, 5, 6}, {2, 2, 2}, {1, 1, 2}, {0, 0, 0, 0, 0, 0}, {2, 1, 3}},
};

Shape OutputShape(const Geometry& g) {
  Shape y = {g.x[0], g.x[1]};
  const size_t rank = g.strides.size();
  for (size_t i = 0; i < rank; ++i) {
    const int64_t reach = (g.kernel[i] - 1) * g.dilations[i] + 1;
    y.push_back((g.x[2 + i] + g.pads[i] + g.pads[rank + i] - reach) / g.strides[i] + 1);
  }
  return y;
}

Attrs MakeAttrs(const Geometry& g) {
  return {{"kernel_shape", g.kernel}, {"strides", g.strides}, {"pads", g.pads}, {"dilations", g.dilations}};
}

}  // namespace

std::vector<Case> PoolCases() {
  std::vector<Case> cases;
  for (const Geometry& g : kGeometries) {
    const std::string suffix(g.name);
    cases.push_back({"MaxPool" + suffix, "MaxPool", {WellSeparated(g.x)}, MakeAttrs(g)});
    int64_t plane = 1;
    for (size_t i = 2; i < g.x.size(); ++i) plane *= g.x[i];
    cases.push_back({"MaxPoolGrad" + suffix,
                     "MaxPoolGrad",
                     {Normal(OutputShape(g)), Ints(OutputShape(g), 0, plane - 1)},
                     {{"input_shape", g.x}}});
    for (int64_t include : {0, 1}) {
      Attrs attrs = MakeAttrs(g);
      attrs.Set("count_include_pad", include);
      const std::string name = suffix + (include ? "_include_pad" : "");
      cases.push_back({"AveragePool" + name, "AveragePool", {Normal(g.x)}, attrs});
      attrs.Set("input_shape", g.x);
      cases.push_back({"AveragePoolGrad" + name, "AveragePoolGrad", {Normal(OutputShape(g))}, attrs});
    }
  }
  cases.push_back({"MaxPool_ties",
                   "MaxPool",
                   {Fixed(Values({1, 1, 4, 4}, std::vector<double>(16, 2.5)))},
                   MakeAttrs(kGeometries[0])});
  cases.push_back({"MaxPool_negative",
                   "MaxPool",
                   {Uniform({1, 2, 6, 5}, -9, -8)},
                   MakeAttrs({"", {}, {3, 3}, {2, 1}, {0, 1, 2, 0}, {1, 1}})});
  return cases;
}

}  // namespace onnxtrain::cases
