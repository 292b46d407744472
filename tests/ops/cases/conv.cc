#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

struct Geometry {
  std::string_view name;
  Shape x, w;  // [N,C,…], [M,C/g,…]
  IntVector strides, pads, dilations;
  int64_t group = 1;
};

const Geometry kGeometries[] = {
    {"", {2, 3, 7, 6}, {4, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {"_1x1", {2, 3, 5, 4}, {6, 3, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
    {"_strided", {2, 3, 8, 9}, {4, 3, 3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {"_strides_differ", {1, 2, 9, 8}, {3, 2, 3, 2}, {3, 1}, {0, 1, 0, 1}, {1, 1}},
    {"_dilated", {2, 3, 9, 9}, {4, 3, 3, 3}, {1, 1}, {2, 2, 2, 2}, {2, 2}},
    {"_dilated_strided", {1, 2, 11, 10}, {3, 2, 3, 2}, {2, 2}, {1, 2, 1, 2}, {2, 3}},
    {"_asymmetric_pads", {2, 3, 6, 7}, {4, 3, 3, 3}, {1, 1}, {0, 1, 2, 0}, {1, 1}},
    {"_asymmetric_strided", {2, 3, 6, 7}, {4, 3, 3, 3}, {2, 2}, {0, 0, 1, 1}, {1, 1}},
    {"_groups", {2, 4, 6, 6}, {6, 2, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 2},
    {"_groups_asymmetric", {2, 4, 6, 6}, {6, 2, 3, 3}, {2, 1}, {1, 0, 0, 1}, {1, 1}, 2},
    {"_depthwise", {2, 5, 6, 6}, {5, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 5},
    {"_depthwise_multiplier", {2, 3, 6, 6}, {6, 1, 3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 3},
    {"_leftover", {1, 2, 8, 8}, {3, 2, 3, 3}, {3, 3}, {0, 0, 0, 0}, {1, 1}},
    {"_1d", {2, 3, 11}, {4, 3, 3}, {1}, {1, 1}, {1}},
    {"_1d_all", {2, 4, 12}, {6, 2, 3}, {2}, {2, 1}, {2}, 2},
    {"_3d", {1, 2, 5, 4, 6}, {3, 2, 3, 2, 3}, {1, 1, 1}, {1, 0, 1, 1, 0, 1}, {1, 1, 1}},
    {"_3d_all", {1, 4, 6, 5, 6}, {2, 2, 2, 3, 2}, {2, 1, 2}, {0, 1, 1, 1, 0, 0}, {1, 1, 2}, 2},
    {"_one_sample_one_channel", {1, 1, 5, 5}, {1, 1, 3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
};

Shape OutputShape(const Geometry& g) {
  Shape y = {g.x[0], g.w[0]};
  const size_t rank = g.strides.size();
  for (size_t i = 0; i < rank; ++i) {
    const int64_t reach = (g.w[2 + i] - 1) * g.dilations[i] + 1;
    y.push_back((g.x[2 + i] + g.pads[i] + g.pads[rank + i] - reach) / g.strides[i] + 1);
  }
  return y;
}

Attrs MakeAttrs(const Geometry& g) {
  return {{"strides", g.strides}, {"pads", g.pads}, {"dilations", g.dilations}, {"group", g.group}};
}

IntVector SpatialShape(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

}  // namespace

std::vector<Case> ConvCases() {
  std::vector<Case> cases;
  for (const Geometry& g : kGeometries) {
    const std::string suffix(g.name);
    const Attrs attrs = MakeAttrs(g);
    cases.push_back({"Conv" + suffix, "Conv", {Normal(g.x), Normal(g.w)}, attrs});
    cases.push_back({"Conv" + suffix + "_bias", "Conv", {Normal(g.x), Normal(g.w), Normal({g.w[0]})}, attrs});
    Attrs transpose = attrs, weight = attrs;
    transpose.Set("output_shape", SpatialShape(g.x));
    weight.Set("kernel_shape", SpatialShape(g.w));
    cases.push_back({"ConvTranspose" + suffix, "ConvTranspose", {Normal(OutputShape(g)), Normal(g.w)}, transpose});
    cases.push_back({"ConvWeightGrad" + suffix, "ConvWeightGrad", {Normal(g.x), Normal(OutputShape(g))}, weight});
  }
  return cases;
}

}  // namespace onnxtrain::cases
