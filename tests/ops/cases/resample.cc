#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

using Numbers = std::vector<double>;

struct Resizing {
  std::string_view name;
  Shape x;
  IntVector axes, sizes;
  Numbers position;  // four per axis
  std::string mode = "linear", rounding = "floor";
  Numbers stretch = {};
  double cubic_a = -0.75;
  int64_t exclude_outside = 0, zero_outside = 0;
};

// Half pixels from `in` to `out` elements, and aligned corners.
Numbers Half(double in, double out) { return {0.5, in, out, -0.5}; }
Numbers Corners(double in, double out) { return {0, in - 1, out - 1, 0}; }
Numbers Plain(double in, double out) { return {0, in, out, 0}; }

Numbers operator+(Numbers a, const Numbers& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Resizing> Resizings() {
  return {
      {"_nearest_twice", {2, 3, 4, 5}, {2, 3}, {8, 10}, Plain(4, 8) + Plain(5, 10), "nearest"},
      {"_nearest_thrice", {2, 3, 4, 5}, {2, 3}, {12, 15}, Plain(4, 12) + Plain(5, 15), "nearest"},
      {"_nearest_half", {2, 3, 4, 6}, {2, 3}, {2, 3}, Half(4, 2) + Half(6, 3), "nearest", "round_prefer_ceil"},
      {"_nearest_uneven", {1, 2, 7, 5}, {2, 3}, {10, 3}, Half(7, 10) + Half(5, 3), "nearest", "round_prefer_floor"},
      {"_nearest_ceil", {1, 2, 7, 5}, {2, 3}, {10, 3}, Half(7, 10) + Half(5, 3), "nearest", "ceil"},
      {"_nearest_1d", {2, 3, 5}, {2}, {10}, Plain(5, 10), "nearest"},
      {"_nearest_3d", {1, 2, 2, 3, 2}, {2, 3, 4}, {4, 6, 4}, Plain(2, 4) + Plain(3, 6) + Plain(2, 4), "nearest"},
      {"_nearest_channels", {2, 3, 4}, {1}, {6}, Plain(3, 6), "nearest"},
      {"_nearest_one_axis", {2, 3, 4, 5}, {2}, {8}, Plain(4, 8), "nearest"},
      {"_linear", {2, 3, 4, 5}, {2, 3}, {8, 10}, Half(4, 8) + Half(5, 10)},
      {"_linear_many_planes", {3, 17, 5, 6}, {2, 3}, {9, 11}, Half(5, 9) + Half(6, 11)},
      {"_linear_down", {2, 3, 9, 8}, {2, 3}, {4, 5}, Half(9, 4) + Half(8, 5)},
      {"_linear_corners", {2, 3, 4, 5}, {2, 3}, {7, 9}, Corners(4, 7) + Corners(5, 9)},
      {"_linear_to_one", {2, 3, 4, 5}, {2, 3}, {1, 1}, {0, 0, 1, 0, 0, 0, 1, 0}},
      {"_linear_asymmetric", {2, 3, 4, 5}, {2, 3}, {8, 10}, Plain(4, 8) + Plain(5, 10)},
      {"_linear_1d", {2, 3, 5}, {2}, {9}, Half(5, 9)},
      {"_linear_3d", {1, 2, 3, 2, 4}, {2, 3, 4}, {5, 4, 6}, Half(3, 5) + Half(2, 4) + Half(4, 6)},
      {"_linear_by_scale", {1, 2, 5, 6}, {2, 3}, {8, 9}, {0.5, 1, 1.7, -0.5, 0.5, 1, 1.6, -0.5}},
      {"_linear_channels_last", {2, 4, 5, 3}, {1, 2}, {7, 9}, Half(4, 7) + Half(5, 9)},
      {"_linear_antialias", {1, 2, 9, 8}, {2, 3}, {4, 3}, Half(9, 4) + Half(8, 3), "linear", "floor", {2.25, 8.0 / 3}},
      {"_linear_outside", {1, 2, 4, 5}, {2, 3}, {5, 6}, {0, 1, 1, -0.75, 0, 1, 1, 0.5}},
      {"_linear_zero_outside",
       {1, 2, 4, 5},
       {2, 3},
       {5, 6},
       {0, 1, 1, -0.75, 0, 1, 1, 0.5},
       "linear",
       "floor",
       {},
       -0.75,
       0,
       1},
      {"_cubic", {2, 2, 4, 5}, {2, 3}, {8, 9}, Half(4, 8) + Half(5, 9), "cubic"},
      {"_cubic_corners", {2, 2, 4, 5}, {2, 3}, {8, 9}, Corners(4, 8) + Corners(5, 9), "cubic"},
      {"_cubic_down", {1, 2, 9, 8}, {2, 3}, {4, 5}, Half(9, 4) + Half(8, 5), "cubic"},
      {"_cubic_exclude_outside",
       {1, 2, 4, 5},
       {2, 3},
       {8, 9},
       Half(4, 8) + Half(5, 9),
       "cubic",
       "floor",
       {},
       -0.5,
       1,
       0},
      {"_cubic_antialias", {1, 2, 9, 8}, {2, 3}, {4, 3}, Half(9, 4) + Half(8, 3), "cubic", "floor", {2.25, 8.0 / 3}},
      {"_all_axes", {2, 3, 4}, {0, 1, 2}, {3, 4, 2}, Half(2, 3) + Half(3, 4) + Half(4, 2)},
      {"_no_axis", {2, 3}, {}, {}, {}},
  };
}

Attrs MakeAttrs(const Resizing& r) {
  return {{"axes", r.axes},
          {"sizes", r.sizes},
          {"position", r.position},
          {"mode", r.mode},
          {"rounding", r.rounding},
          {"stretch", r.stretch.empty() ? Numbers(r.axes.size(), 1) : r.stretch},
          {"cubic_a", r.cubic_a},
          {"exclude_outside", r.exclude_outside},
          {"zero_outside", r.zero_outside}};
}

void AddResampling(std::vector<Case>* cases, const Resizing& r) {
  const std::string suffix(r.name);
  Attrs attrs = MakeAttrs(r);
  Shape y = r.x;
  IntVector from;
  for (size_t i = 0; i < r.axes.size(); ++i) {
    from.push_back(r.x[r.axes[i]]);
    y[r.axes[i]] = r.sizes[i];
  }
  cases->push_back({"Resample" + suffix, "Resample", {Normal(r.x)}, attrs});
  attrs.Set("input_sizes", from);
  cases->push_back({"ResampleGrad" + suffix, "ResampleGrad", {Normal(y)}, attrs});
}

// --- GridSample
// -------------------------------------------------------------------------------------------------------

Attrs Grid(const std::string& mode, const std::string& padding, int64_t align_corners) {
  return {{"mode", mode}, {"padding_mode", padding}, {"align_corners", align_corners}};
}

// Inside and outside of the image.
Input Places(Shape shape) { return Uniform(std::move(shape), -1.3, 1.3); }

void AddGridSamples(std::vector<Case>* cases, const std::string& suffix, const Shape& x, const Shape& grid,
                    const Attrs& attrs) {
  Shape y = {x[0], x[1]};
  y.insert(y.end(), grid.begin() + 1, grid.end() - 1);
  cases->push_back({"GridSample" + suffix, "GridSample", {Normal(x), Places(grid)}, attrs, {0}, 2e-5});
  Attrs with_shape = attrs;
  with_shape.Set("input_shape", x);
  cases->push_back(
      {"GridSampleInputGrad" + suffix, "GridSampleInputGrad", {Normal(y), Places(grid)}, with_shape, {0}, 2e-5});
  cases->push_back(
      {"GridSampleGridGrad" + suffix, "GridSampleGridGrad", {Normal(y), Normal(x), Places(grid)}, attrs, {0}, 2e-5});
}

void AddAllGridSamples(std::vector<Case>* cases) {
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (int64_t align : {0, 1}) {
        const std::string suffix = std::string("_") + mode + "_" + padding + (align ? "_corners" : "");
        AddGridSamples(cases, suffix, {2, 3, 4, 5}, {2, 3, 4, 2}, Grid(mode, padding, align));
        if (std::string(mode) != "cubic")
          AddGridSamples(cases, suffix + "_3d", {1, 2, 3, 4, 5}, {1, 2, 3, 4, 3}, Grid(mode, padding, align));
      }
    }
  }
  AddGridSamples(cases, "_many_places", {1, 18, 6, 7}, {1, 15, 20, 2}, Grid("linear", "zeros", 0));
}

// --- RoiAlign
// ---------------------------------------------------------------------------------------------------------

void AddRoiAligns(std::vector<Case>* cases) {
  // Regions inside, partly outside, wholly outside, and of no height.
  const Input rois = Fixed(Values(
      {5, 4}, {1.2, 0.7, 8.9, 9.1, -3.1, 2.2, 5.3, 14.4, 40, 40, 50, 50, 4.1, 6.3, 9.7, 6.3, 2.3, 2.1, 3.2, 2.9}));
  const Input batch = IntValues({5}, {0, 1, 1, 0, 1});
  for (const char* mode : {"avg", "max"}) {
    for (int64_t ratio : {0, 2}) {
      for (int64_t half : {0, 1}) {
        Attrs attrs = {{"mode", std::string(mode)}, {"output_height", int64_t{3}}, {"output_width", int64_t{2}},
                       {"sampling_ratio", ratio},   {"spatial_scale", 0.6},        {"half_pixel", half}};
        const std::string suffix =
            std::string("_") + mode + (ratio ? "_fixed" : "_adaptive") + (half ? "_half_pixel" : "");
        cases->push_back({"RoiAlign" + suffix, "RoiAlign", {Normal({2, 3, 6, 7}), rois, batch}, attrs});
        attrs.Set("input_shape", Shape{2, 3, 6, 7});
        cases->push_back({"RoiAlignGrad" + suffix,
                          "RoiAlignGrad",
                          {Normal({5, 3, 3, 2}), rois, batch, Normal({2, 3, 6, 7})},
                          attrs});
      }
    }
  }
}

}  // namespace

std::vector<Case> ResampleCases() {
  std::vector<Case> cases;
  for (const Resizing& r : Resizings()) AddResampling(&cases, r);
  AddAllGridSamples(&cases);
  AddRoiAligns(&cases);
  for (int64_t n : {1, 2, 3, 5}) {
    const std::string suffix = StrCat("_", n);
    cases.push_back({"Det" + suffix, "Det", {Normal({2, 3, n, n})}, {}});
    cases.push_back({"Cofactor" + suffix, "Cofactor", {Normal({2, 3, n, n})}, {}});
  }
  cases.push_back(
      {"Det_singular",
       "Det",
       {Values({3, 3, 3}, {1, 2, 3, 2, 4, 6, 1, 0, 1, 1, 2, 3, 2, 4, 6, 3, 6, 9, 2, 0, 1, 1, 3, 2, 1, 1, 4})},
       {}});
  cases.push_back({"Det_matrix", "Det", {Normal({4, 4})}, {}});
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{7, 4}, {4, 7}}) {
    for (const double step : {3, 4})
      cases.push_back({StrCat("LeadingDirections_", m, "_step", step),
                       "LeadingDirections",
                       {Fixed(Normal({m, n})), Fixed(Normal({4, 2})), Fixed(Values({}, {step}))},
                       {{"every", int64_t{3}}}});
  }
  return cases;
}

}  // namespace onnxtrain::cases
